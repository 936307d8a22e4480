"""The rendered data set.

What it promises, and its geometry against distances worked out by hand.
"""

import pytest
import torch

from primavista.streams.rendered import renderer
from primavista.streams.rendered.hands import distance, hand_of, meet, moves_of
from primavista.streams.rendered.looks import look_of
from primavista.streams.rendered.rays import CAMERA, bodies_of, meet_object, outside
from primavista.streams.rendered.renderer import CATEGORIES, Scene, render
from primavista.streams.rendered.shapes import Points, box, capsule, corner, hold_of, tube

SMALL = Scene(frames=6, size=32)


def at(*point: float) -> Points:
    x, y, z = (torch.tensor([float(v)]) for v in point)
    return x, y, z


def test_frames_are_uint8_rgb_squares_of_the_asked_size() -> None:
    for size in (8, 32, 45):
        pictures = render(Scene(frames=3, size=size), 1, 1)
        assert pictures.dtype == torch.uint8
        assert pictures.shape == (3, size, size, 3)


def test_same_scene_gives_the_same_pixels_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = render(SMALL, 12, 5)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(first, render(SMALL, 12, 5))


@pytest.mark.parametrize("category", range(len(CATEGORIES)))
def test_a_frame_does_not_depend_on_which_others_are_asked_for(category: int) -> None:
    scene, object = Scene(frames=20, size=40), 5 * category + category % 5 + 1
    session = category + 1
    together = render(scene, object, session)
    assert torch.equal(render(scene, object, session, [19, 0, 7, 7]), together[[19, 0, 7, 7]])
    for frame in (0, 13):
        assert torch.equal(render(scene, object, session, [frame])[0], together[frame])


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = render(SMALL, 21, 2)
    monkeypatch.setitem(renderer.PIXELS_AT_ONCE, "cpu", 2 * SMALL.size**2)
    assert torch.equal(whole, render(SMALL, 21, 2))


def test_no_frames_is_an_empty_batch() -> None:
    assert render(SMALL, 1, 1, []).shape == (0, 32, 32, 3)


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a.float() - b.float()).abs().mean().item()


def test_seeds_objects_sessions_and_frames_differ() -> None:
    base = render(SMALL, 1, 1, [0])
    others = {
        "seed": render(Scene(frames=6, size=32, seed=1), 1, 1, [0]),
        "object": render(SMALL, 2, 1, [0]),
        "session": render(SMALL, 1, 2, [0]),
        "frame": render(SMALL, 1, 1, [3]),
    }
    for what, other in others.items():
        assert difference(base, other) > 3, what


def test_neighbouring_frames_are_nearer_than_far_ones() -> None:
    scene = Scene(frames=60, size=32)
    video = render(scene, 43, 1, [0, 1, 20])
    assert difference(video[0], video[1]) < 0.5 * difference(video[0], video[2])


def test_the_path_is_the_same_at_any_number_of_frames() -> None:
    short = moves_of(0, 1, 1, torch.tensor([15 / 60], dtype=torch.float64), "round")
    long = moves_of(0, 1, 1, torch.tensor([75 / 300], dtype=torch.float64), "round")
    assert torch.equal(short.wrist, long.wrist)


def test_identity_depends_on_seed_and_object_only_and_members_differ() -> None:
    for category in range(len(CATEGORIES)):
        members = [look_of(0, category, member, 0.8) for member in range(5)]
        assert members[2].measures == look_of(0, category, 2, 0.8).measures
        assert torch.equal(members[2].label, look_of(0, category, 2, 0.8).label)
        for name in vars(members[0].measures):
            if name not in ("style", "stretch"):
                drawn = {getattr(member.measures, name) for member in members}
                assert len(drawn) == 5, (CATEGORIES[category], name)


def test_identity_difference_scales_with_the_spread() -> None:
    wide = [look_of(0, 4, m, 1.0).measures.radius for m in range(5)]
    fine = [look_of(0, 4, m, 0.25).measures.radius for m in range(5)]
    assert max(fine) - min(fine) == pytest.approx((max(wide) - min(wide)) / 4)


def test_any_number_of_categories_objects_and_sessions() -> None:
    scene = Scene(categories=23, objects=7, sessions=30, frames=2, size=24)
    assert difference(render(scene, 161, 30), render(scene, 7, 30)) > 3
    # The eleventh category repeats the first family with other traits.
    assert look_of(0, 10, 0, 0.8).family == look_of(0, 0, 0, 0.8).family
    assert look_of(0, 10, 0, 0.8).measures != look_of(0, 0, 0, 0.8).measures


@pytest.mark.parametrize("object", range(1, 51, 2))
def test_the_object_fills_a_sensible_share_of_the_image_and_stays_near_its_middle(
    object: int,
) -> None:
    scene = Scene(frames=4, size=32)
    stage = renderer._stage(scene, object, object % 11 + 1, torch.device("cpu"))
    free = renderer.FREEDOM.get(CATEGORIES[stage.look.family], "round")
    moves = moves_of(0, object % 11 + 1, object, torch.arange(4).double() / 4, free)
    hits = meet_object(stage.look, stage.hold, stage.rays, bodies_of(moves, torch.device("cpu")))
    for frame in range(4):
        mine = hits.frame == frame
        assert 0.02 < hits.alpha[mine].sum().item() / 32**2 < 0.6
        pixel = hits.index[mine] % 32**2
        row, column = (pixel // 32).float().mean().item(), (pixel % 32).float().mean().item()
        assert 5 < row < 27
        assert 5 < column < 27


@pytest.mark.parametrize("category", range(len(CATEGORIES)))
def test_the_bounding_capsule_holds_the_whole_object(category: int) -> None:
    line = torch.linspace(-1.6, 1.6, 41)
    x, y, z = (v.reshape(-1) for v in torch.meshgrid(line, line, line, indexing="ij"))
    for member in range(5):
        look = look_of(3, category, member, 1.0)
        hold = hold_of(look.family, look.measures)
        inside = outside(look, (x, y, z)) < 0
        assert inside.any()
        assert (capsule((x, y, z), hold.low, hold.high, hold.radius)[inside] <= 0).all()


def test_distances_worked_out_by_hand() -> None:
    assert box(at(2, 0, 0), (1, 1, 1), 0.0).item() == pytest.approx(1)
    assert box(at(2, 2, 0.5), (1, 1, 1), 0.0).item() == pytest.approx(2**0.5)
    assert box(at(0, 0, 0.25), (1, 1, 1), 0.1).item() == pytest.approx(-0.75)
    assert capsule(at(0, 3, 4), (0, -1, 0), (0, 0, 0), 1.0).item() == pytest.approx(4)
    assert tube(torch.tensor([3.0]), torch.tensor([6.0]), 0.0, -2.0, 2.0).item() == pytest.approx(5)
    assert corner(torch.tensor([-1.0]), torch.tensor([-3.0])).item() == pytest.approx(-1)


def test_a_ray_meets_the_hand_where_small_steps_meet_it() -> None:
    hold = hold_of(4, look_of(0, 4, 0, 0.8).measures)
    hand = hand_of(0, 1, 21, hold, torch.device("cpu"))
    line = torch.linspace(-0.8, 0.8, 25)
    x, y = (v.reshape(-1) for v in torch.meshgrid(line, line, indexing="ij"))
    origin = (x, y, torch.full_like(x, CAMERA))
    still = torch.zeros_like(x)
    depth, coverage = meet(hand, origin, (still, still, still - 1), 0.01)
    steps = torch.linspace(CAMERA - 2, CAMERA + 2, 2001)
    inside = torch.stack([distance(hand, (x, y, CAMERA - t + still)) < 0 for t in steps])
    assert torch.equal(inside.any(0)[coverage % 1 == 0], (coverage == 1)[coverage % 1 == 0])
    first = steps[inside.int().argmax(0)]
    # The steps are 0.002 apart; where a ray only grazes a finger, the two may see different
    # fingers.
    error = (depth - first)[coverage == 1].abs()
    assert error.median() < 0.003
    assert error.quantile(0.9) < 0.02


@pytest.mark.parametrize(
    ("object", "session", "frames", "bound"),
    [
        (0, 1, None, r"1\.\.50"),
        (51, 1, None, r"1\.\.50"),
        (1, 0, None, r"1\.\.11"),
        (1, 12, None, r"1\.\.11"),
        (1, 1, [6], r"0\.\.5"),
        (1, 1, [-1], r"0\.\.5"),
    ],
)
def test_what_is_outside_the_scene_is_refused(
    object: int, session: int, frames: list[int] | None, bound: str
) -> None:
    with pytest.raises(ValueError, match=bound):
        render(SMALL, object, session, frames)


@pytest.mark.parametrize("name", ["categories", "objects", "sessions", "frames", "size"])
def test_a_scene_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least"):
        Scene(**{name: 0})
