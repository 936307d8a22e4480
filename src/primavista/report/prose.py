"""A paragraph on methods that can be pasted into a paper, from the results alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from primavista.networks.base import FROM_FUNCTION
from primavista.report.final_tables import tuned_runs, varying
from primavista.report.hyperparameters import changed_table, own_options_table
from primavista.report.methods import retrained_strategies
from primavista.report.read import StoredCell
from primavista.report.series import build_series, by_panel
from primavista.report.titles import DATA_TITLES, protocol_order, protocol_title, strategy_order
from primavista.strategies.registry import strategy_info

NETWORKS = {"mobilenet_v1": "MobileNet v1", "efficientnet_lite0": "EfficientNet-Lite0"}
WEIGHTS = {
    "imagenet": "weights pretrained on ImageNet",
    "timm": "timm's weights pretrained on ImageNet",
    "random": "random weights",
    FROM_FUNCTION: "the weights that it is built with",
}
REHEARSES = " (rehearses)"
MOST_OPTIONS = 5  # of a strategy without a preset, in the paragraph
MOST_CHANGES = 3  # of hyperparameters, in the paragraph
Cells = Sequence[StoredCell]


def methods_paragraph(cells: Iterable[StoredCell]) -> str:
    """Describe data, network, strategies, tests, runs and machine in a few sentences.

    Args:
        cells: all cells; those that are not done say nothing.

    Returns:
        The paragraph; empty if no cell is done.
    """
    done = [cell for cell in cells if cell.readable and cell.status == "done"]
    if not done:
        return ""
    return " ".join(filter(None, (sentence(done) for sentence in SENTENCES)))


def _join(texts: Iterable[str | None], last: str = "and") -> str:
    """Join different texts, as in `a, b and c`; those that are None are left out."""
    found = list(dict.fromkeys(text for text in texts if text))
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} {last} {found[-1]}"


def _strategies(cells: Cells) -> str:
    names = sorted({cell.strategy for cell in cells}, key=strategy_order)
    titles = _join(map(_short_title, names))
    protocols = sorted({cell.protocol for cell in cells}, key=protocol_order)
    streams = _join(_protocol(cells, protocol) for protocol in protocols)
    verb = "We compare" if len(names) > 1 else "We evaluate"
    return f"{verb} {titles} on {streams}.{_rehearsing(names)}"


def _short_title(name: str) -> str:
    """Return the title of a strategy without the remark of figures and tables."""
    return strategy_info(name).title.removesuffix(REHEARSES)


def _rehearsing(names: Sequence[str]) -> str:
    """Say which strategies rehearse, in a sentence of its own instead of a remark at each name."""
    found = [n for n in names if strategy_info(n).title.endswith(REHEARSES)]
    verb = "rehearse" if len(found) > 1 else "rehearses"
    return f" {_join(map(_short_title, found))} {verb} stored data." if found else ""


def _protocol(cells: Cells, protocol: str) -> str:
    batches = {cell.batches for cell in cells if cell.protocol == protocol and cell.batches}
    count = _join((f"{number:,}" for number in sorted(batches)), "or")
    return f"{protocol_title(protocol)} ({count} batches)" if count else protocol_title(protocol)


def _data(cells: Cells) -> str:
    return f"The data is {_join(map(_data_set, cells))}."


def _data_set(cell: StoredCell) -> str:
    name = DATA_TITLES.get(cell.data_name, cell.data_name)
    facts = cell.result.data if cell.result else None
    if facts is None or cell.result is None:
        return name
    size = f", scaled to {facts.size} × {facts.size} pixels" if facts.size else ""
    return (
        f"{name}, with {len(cell.result.classes)} classes and {facts.train_frames:,} training "
        f"frames in {facts.train_sessions:,} videos{size}"
    )


def _network(cells: Cells) -> str:
    return f"The network is {_join(map(_backbone, cells), 'or')}."


def _backbone(cell: StoredCell) -> str:
    name = str(cell.settings.get("backbone name", "unknown"))
    options = cell.settings.get("backbone options") or {}
    values = ", ".join(f"{key} {value}" for key, value in options.items())
    more = f" ({values})" if values else ""
    weights = str(cell.settings.get("backbone weights") or "")
    source = WEIGHTS.get(weights, f"the weights {weights}" if weights else "")
    return f"{NETWORKS.get(name, name)}{more}" + (f" with {source}" if source else "")


def _tests(cells: Cells) -> str:
    times = dict.fromkeys(_test_times(cell) for cell in cells if cell.retrain is None)
    often = _join(times, "or") if len(times) < 3 else "after the first batch, the last and others"
    others = "; ".join(
        f"{one.title.removesuffix(REHEARSES)}: after {one.after}"
        for one in retrained_strategies(cells)
    )
    often = f"{often} ({others})" if often and others else often or others
    return f"Accuracy is measured on {_join(map(_test_set, cells), 'or')}, {often}."


def _test_set(cell: StoredCell) -> str:
    frames = f"{cell.test_frames:,} frames" if cell.test_frames else "frames"
    if cell.full_test:
        return f"all {frames} of the test set"
    thin = cell.test_thin or 1
    return f"{frames} of the test set" + (f", one in {thin} of each video" if thin > 1 else "")


def _test_times(cell: StoredCell) -> str:
    every = cell.cell.test_every if cell.cell else 1
    if every == 1:
        return "after each batch"
    return f"after the first batch, every {every} batches and the last one"


def _runs(cells: Cells) -> str:
    counts = {len(one.done) for one in build_series(cells)}
    if counts == {1}:
        return "Each result is that of a single run."
    number = _join((f"{count}" for count in sorted(counts)), "or")
    own = varying(cells)
    differ = _join(name for name, varies in own.items() if varies)
    same = _join(name for name, varies in own.items() if not varies)
    text = (
        f"Results are means and sample standard deviations over {number} runs, "
        f"which differ in {differ}"
    )
    verb = "are" if list(own.values()).count(False) > 1 else "is"
    return f"{text}; {same} {verb} the same in all runs." if same else f"{text}."


def _hyperparameters(cells: Cells) -> str:
    series = build_series(cells)
    changed = changed_table(series)
    several = len(by_panel(series)) > 1
    own = own_options_table(cells)
    names_of: dict[str, list[str]] = {}  # by what is changed
    for panel, name, changes in changed.rows if changed else ():
        short = f"{name}".replace(REHEARSES, "")
        names_of.setdefault(f"{changes}", []).append(f"{short} on {panel}" if several else short)
    parts = [f"{_join(names)} ({changes})" for changes, names in names_of.items()]
    text = f"Hyperparameters are those of primavista's presets{_versions(cells)}"
    if len(parts) > MOST_CHANGES:
        text += ", except where the table of changes says otherwise."
    else:
        text += f", except for {'; '.join(parts)}." if parts else "."
    for name, options in own.rows if own else ():
        few = f"{options}".count(";") < MOST_OPTIONS
        where = f": {options}" if few else " are in the table of options"
        text += f" The options of {f'{name}'.replace(REHEARSES, '')}{where}."
    tuned = tuned_runs(cells)
    return f"{text} They were chosen on run {_join(map(str, tuned))}." if tuned else text


def _versions(cells: Cells) -> str:
    found = _join((_machine_text(cell, "primavista") for cell in cells), "or")
    return f" (version {found})" if found else ""


def _machines(cells: Cells) -> str:
    where = _join(map(_computed_on, cells), "or")
    return f"Everything was computed {where}." if where else ""


def _computed_on(cell: StoredCell) -> str | None:
    if not cell.machine:
        return None
    torch, python = (_machine_text(cell, name) for name in ("torch", "python"))
    software = _join((torch and f"PyTorch {torch}", python and f"Python {python}"))
    gpu, cpu = (_machine_text(cell, name) for name in ("gpu", "cpu"))
    threads = cell.machine.get("threads")
    on_cpu = f"{_threads(threads)} of a CPU ({cpu})" if cpu else "a CPU"
    on_gpu = f"a GPU ({gpu})"
    precision = _machine_text(cell, "precision")
    in_precision = f"in {precision}" if precision else ""
    place = on_gpu if gpu and cell.machine.get("device") == "cuda" else on_cpu
    with_software = f"with {software}" if software else ""
    return " ".join(filter(None, (in_precision, with_software, f"on {place}")))


def _threads(count: object) -> str:
    return "one thread" if count in (1, None) else f"{count} threads"


def _machine_text(cell: StoredCell, name: str) -> str | None:
    value = cell.machine.get(name)
    return str(value) if value else None


SENTENCES: tuple[Callable[[Cells], str], ...] = (
    _strategies,
    _data,
    _network,
    _tests,
    _runs,
    _hyperparameters,
    _machines,
)
