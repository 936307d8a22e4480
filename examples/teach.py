"""Teach three objects, ask about a film, correct a name, save and load.

    python examples/teach.py                                       # films that are rendered now
    python examples/teach.py mug.mp4 kettle.mp4 cup.mp4 table.mp4  # your own; asks about the last

An object gets the name of its file. Rendering needs the extra `train`, videos need the extra
`video`; a folder of pictures can take the place of a video and needs neither.
"""

import sys
from pathlib import Path
from typing import Any

import primavista as pv

FILE = Path("objects.pv")


def rendered_films() -> tuple[dict[str, Any], Any]:
    """Return one film of each of three objects, and another film of the second one."""
    import torch

    from primavista.streams.rendered import Scene

    data = pv.rendered(Scene(categories=3, objects=1, sessions=4, frames=20, size=128))

    def film(session: pv.Session) -> Any:
        return data.frames[torch.arange(session.start, session.stop)]

    lessons = {data.classes[s.label]: film(s) for s in data.train if s.number == 1}
    return lessons, film(data.test[1])


def main(paths: list[str]) -> None:
    """Teach the films, and ask about the last one."""
    if paths:
        lessons: dict[str, Any] = {Path(path).stem: path for path in paths[:-1]}
        question: Any = paths[-1]
    else:
        lessons, question = rendered_films()

    learner = pv.Learner()
    for name, film in lessons.items():
        report = learner.learn(film, name)
        print(f"{name}: learned from {report.total} frames")

    answer = learner.predict_video(question)
    print(f"The last film shows {answer.label} (known: {answer.known}).")

    learner.rename(name, f"my {name}")
    learner.undo()  # takes back the last change
    learner.save(FILE)
    again = pv.Learner.load(FILE)
    print(f"{FILE} knows {', '.join(again.labels)}.")
    assert again.predict_video(question) == answer


if __name__ == "__main__":
    main(sys.argv[1:])
