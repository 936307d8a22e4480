"""A ROS 2 node that recognises what a camera sees, and learns what it is told.

    ros2 run or: python examples/ros2_node.py --ros-args -p model:=kitchen.pv

    subscribes  image (sensor_msgs/Image, rgb8 or bgr8)     every frame is recognised; of those that wait only the newest.
                                                            Other encodings are dropped, with a warning
                name  (std_msgs/String)                     a name: the next `frames` frames are a lesson; "" ends one early
    publishes   seen  (std_msgs/String)                     JSON: label, confidence, known
    parameters  model (file; made where there is none), frames (of a lesson, 60)

The learner runs inside the node: no service is needed. Lessons are learned in a thread of their own, one after the other,
each saved before it counts; the node goes on recognising, and taking in the next one, meanwhile. No other process may teach
the file.
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

from primavista import Learner
from primavista.storage.lock import file_lock


class Teacher(Node):
    """One camera, one learner."""

    def __init__(self) -> None:
        super().__init__("primavista")
        self.model = (
            Path(self.declare_parameter("model", "objects.pv").value).expanduser().absolute()
        )
        self.frames = int(self.declare_parameter("frames", 60).value)
        self.held = ExitStack()
        self.held.enter_context(file_lock(self.model))
        self.learner = Learner.load(self.model) if self.model.exists() else Learner()
        self.label, self.lesson = "", None
        self.lessons: queue.Queue = queue.Queue()  # those that were shown and wait to be learned
        self.learning = threading.Thread(target=self.learn_all, daemon=True)
        self.learning.start()
        self.seen = self.create_publisher(String, "seen", 10)
        self.create_subscription(
            Image, "image", self.on_image, 1
        )  # a queue of one: stale frames are dropped
        self.create_subscription(String, "name", self.on_name, 10)

    def on_name(self, message: String) -> None:
        """Begin a lesson, or end the one that is being given."""
        self.end()
        if message.data.strip():
            self.label, self.lesson = message.data.strip(), self.learner.open_lesson()
            self.get_logger().info(f"show me the {self.label}")

    def on_image(self, message: Image) -> None:
        """Recognise a frame; while a lesson is given, take it in."""
        try:
            image = pixels(message)
        except ValueError as error:
            return self.get_logger().warning(
                f"a frame was dropped: {error}", throttle_duration_sec=10.0
            )
        if self.lesson is not None:
            self.lesson.add(image)
            self.lesson.prepare()  # the network's part of the lesson, while frames come
            if len(self.lesson) >= self.frames:
                self.end()
        found = self.learner.predict(image)
        said = {
            "label": found.label,
            "confidence": round(found.confidence, 4),
            "known": found.known,
        }
        self.seen.publish(String(data=json.dumps(said)))

    def end(self) -> None:
        """Let what was shown be learned: predictions go on from the state before."""
        lesson, self.lesson = self.lesson, None
        if lesson is not None and len(lesson):
            self.lessons.put((lesson, self.label))

    def learn_all(self) -> None:
        """One lesson after the other, until there is None."""
        while (shown := self.lessons.get()) is not None:
            self.learn(*shown)
            self.lessons.task_done()

    def learn(self, lesson: object, label: str) -> None:
        """On a copy: what is not on disk is not known."""
        draft = self.learner.copy()
        try:
            draft.learn(lesson, label)
            draft.save(self.model)
        except Exception as error:
            self.get_logger().error(f"{label} was not learned: {error}")
        else:
            self.learner = draft
            self.get_logger().info(f"{label} is learned")

    def destroy_node(self) -> None:
        """Learn what was shown by now, and let go of the file."""
        self.lessons.put(None)
        self.learning.join()
        self.held.close()
        super().destroy_node()


def pixels(message: Image) -> np.ndarray:
    """H x W x 3, RGB; rows may be padded."""
    if message.encoding not in ("rgb8", "bgr8"):
        raise ValueError(f"images must be rgb8 or bgr8, not {message.encoding}")
    rows = np.frombuffer(bytes(message.data), np.uint8).reshape(message.height, message.step)
    image = rows[:, : 3 * message.width].reshape(message.height, message.width, 3)
    return np.ascontiguousarray(image[..., ::-1] if message.encoding == "bgr8" else image)


def main() -> None:
    """Until interrupted."""
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
