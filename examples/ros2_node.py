"""A ROS 2 node that recognises what a camera sees, and learns the objects that it is told.

    python examples/ros2_node.py --ros-args -p model:=kitchen.pv

Subscribes to:
    image (sensor_msgs/Image, rgb8 or bgr8): Every frame is recognised. If frames wait, only the
        newest one is. Frames with another encoding are dropped with a warning.
    name (std_msgs/String): The next frames are a lesson about the object of this name; an empty
        name ends the lesson early.

Publishes:
    seen (vision_msgs/Classification): The known object that the frames of the last second show
        together, as far as they show the same scene, with the header of the newest image:
        `class_id` is the name, `score` the confidence. No results if no object is known.
    answer (std_msgs/String): JSON with the fields label, confidence and answer: "known", "likely"
        or "unknown". A robot can ask about what is likely, and teach the name that it hears.
    found (vision_msgs/Detection2DArray): Where the objects of the newest frame are, with the
        header of its image: boxes in pixels, `class_id` the name, `score` the confidence. Only if
        `locate` is true.

Parameters:
    model: The file of the learner; it is created if it does not exist.
    frames: The number of frames of a lesson (60).
    locate: Whether to search the whole of every frame for objects (false).

The learner runs inside the node, so no service is needed. Lessons are learned in a thread, one
after the other, and each is saved before it counts. Meanwhile the node goes on recognising and
collects the next lesson. No other process can teach the file at the same time.
"""

import json
import queue
import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import rclpy
from rclpy.node import Node
from sensor_msgs.msg import Image
from std_msgs.msg import String
from vision_msgs.msg import (
    Classification,
    Detection2D,
    Detection2DArray,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
)

from primavista import Learner, Located, Prediction
from primavista.storage.disk import file_lock


class Teacher(Node):
    """One camera and one learner."""

    def __init__(self) -> None:
        super().__init__("primavista")
        model = Path(self.declare_parameter("model", "objects.pv").value)
        self.model = model.expanduser().absolute()
        self.frames = int(self.declare_parameter("frames", 60).value)
        self.locate = bool(self.declare_parameter("locate", False).value)
        self.resources = ExitStack()
        self.resources.enter_context(file_lock(self.model))
        self.learner = Learner.load(self.model) if self.model.exists() else Learner()
        self.watch = self.learner.watch()
        self.label = ""
        self.lesson = None
        self.lessons: queue.Queue = queue.Queue()  # complete lessons that wait to be learned
        self.learning = threading.Thread(target=self.learn_all, daemon=True)
        self.learning.start()
        self.seen = self.create_publisher(Classification, "seen", 10)
        self.answer = self.create_publisher(String, "answer", 10)
        if self.locate:
            self.found = self.create_publisher(Detection2DArray, "found", 10)
        # a queue of one: older frames are dropped
        self.create_subscription(Image, "image", self.on_image, 1)
        self.create_subscription(String, "name", self.on_name, 10)

    def on_name(self, message: String) -> None:
        """Begin a lesson; one that is being collected ends."""
        self.end_lesson()
        if message.data.strip():
            self.label = message.data.strip()
            self.lesson = self.learner.open_lesson()
            self.get_logger().info(f"show me the {self.label}")

    def on_image(self, message: Image) -> None:
        """Recognise a frame, and add it to the lesson if one is being collected."""
        try:
            image = pixels(message)
        except ValueError as error:
            warning = f"a frame was dropped: {error}"
            return self.get_logger().warning(warning, throttle_duration_sec=10.0)
        if self.lesson is not None:
            self.lesson.add(image)
            self.lesson.prepare()  # runs the network while the frames come
            if len(self.lesson) >= self.frames:
                self.end_lesson()
        prediction = self.watch.predict(image)
        self.seen.publish(classification(prediction, message.header))
        answer = {
            "label": prediction.label,
            "confidence": round(prediction.confidence, 4),
            "answer": prediction.answer,
        }
        self.answer.publish(String(data=json.dumps(answer)))
        if self.locate:
            self.found.publish(detections(self.learner.locate(image), message.header))

    def end_lesson(self) -> None:
        """Hand the collected frames over to the thread that learns."""
        lesson, self.lesson = self.lesson, None
        if lesson is not None and len(lesson):
            self.lessons.put((lesson, self.label))

    def learn_all(self) -> None:
        """Learn one lesson after the other, until there is a None in the queue."""
        while (waiting := self.lessons.get()) is not None:
            self.learn(*waiting)
            self.lessons.task_done()

    def learn(self, lesson: object, label: str) -> None:
        """Learn a lesson on a copy of the learner, which replaces it once it is on disk."""
        draft = self.learner.copy()
        try:
            draft.learn(lesson, label)
            draft.predict(np.zeros((8, 8, 3), np.uint8))  # solves the head here, not in a callback
            draft.save(self.model)
        except Exception as error:
            self.get_logger().error(f"{label} was not learned: {error}")
        else:
            self.learner, self.watch = draft, draft.watch()
            self.get_logger().info(f"{label} is learned")

    def destroy_node(self) -> None:
        """Learn the lessons that wait, then release the file."""
        self.lessons.put(None)
        self.learning.join()
        self.resources.close()
        super().destroy_node()


def pixels(message: Image) -> np.ndarray:
    """Return the pixels of a message: H x W x 3, RGB; its rows may be padded."""
    if message.encoding not in ("rgb8", "bgr8"):
        raise ValueError(f"images must be rgb8 or bgr8, not {message.encoding}")
    rows = np.frombuffer(bytes(message.data), np.uint8).reshape(message.height, message.step)
    image = rows[:, : 3 * message.width].reshape(message.height, message.width, 3)
    return np.ascontiguousarray(image[..., ::-1] if message.encoding == "bgr8" else image)


def classification(prediction: Prediction, header: object) -> Classification:
    """Return the known object, if there is one, as a Classification."""
    results = []
    if prediction.recognised_object is not None:
        name, score = prediction.recognised_object, prediction.confidence
        results.append(ObjectHypothesis(class_id=name, score=score))
    return Classification(header=header, results=results)


def detections(located: list[Located], header: object) -> Detection2DArray:
    """Return the objects that were found as a Detection2DArray."""
    messages = []
    for one in located:
        hypothesis = ObjectHypothesisWithPose()
        hypothesis.hypothesis.class_id = one.label
        hypothesis.hypothesis.score = one.confidence
        found = Detection2D(header=header, results=[hypothesis])
        box = one.box
        found.bbox.center.position.x = (box.left + box.right) / 2
        found.bbox.center.position.y = (box.top + box.bottom) / 2
        found.bbox.size_x, found.bbox.size_y = float(box.width), float(box.height)
        messages.append(found)
    return Detection2DArray(header=header, detections=messages)


def main() -> None:
    """Run the node until it is interrupted."""
    rclpy.init()
    node = Teacher()
    try:
        rclpy.spin(node)
    except KeyboardInterrupt:
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
