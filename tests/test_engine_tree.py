"""`qualify/engine_tree.py`: what an arm runs from, and that arms really run from it.

The composition of an override is covered with a private bundle made here: no public example fills the point.
"""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from config.arena import load_arena
from config.errors import ConfigurationError, HostError
from config.target_catalog import load_catalog
from intake.content_hash import hash_tree
from qualify.bundle_loader import BundleLoader
from qualify.docket import open_docket
from qualify.engine_tree import DOCUMENT, EngineTree, Part, check_tree, discard, materialise, package_of
from qualify.referee import PRELOAD, run_attempt
from qualify.request import AttemptRequest, Holding
from qualify.sandbox.client import Zygote
from scoring.grade import grade
from tests.qualify.support import EXAMPLES, describe_bundle, make_request, write_arena

CATALOG = load_catalog()
SILU, NORM = "activation.silu_and_mul", "norm.rmsnorm"
PLAIN, REDUCE = "moe.fused_experts", "moe.fused_experts_reduce"
ATOMIC = "collective.moe_epilogue.v1"
MEMBERS = CATALOG.targets[ATOMIC].members

Bundles = dict[str, str]  # folder by content hash
Write = Callable[..., Part]


@pytest.fixture
def bundles() -> Bundles:
    """The bundles of one test."""
    return {}


@pytest.fixture
def write(tmp_path: Path, bundles: Bundles) -> Write:
    """Write a bundle for a target and return its part."""

    def build(target: str, text: str = "def f(): return 0\n", **files: str) -> Part:
        folder = tmp_path / f"bundle-{len(bundles)}"
        content = {"manifest.toml": f'bundle_id = "b"\n# {target}\n', "kernels/k.py": text, **files}
        for path, body in content.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(body)
        part = Part(target, hash_tree(folder).hex)
        bundles[part.content_hash] = str(folder)
        return part

    return build


def snapshot(place: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return mode, time and bytes of everything below a folder."""
    found = {}
    for path in sorted(place.rglob("*")):
        known = path.lstat()
        data = b"" if path.is_dir() else path.read_bytes()
        found[str(path.relative_to(place))] = (stat.S_IMODE(known.st_mode), known.st_mtime_ns, data)
    return found


def test_the_same_bundles_are_the_same_tree(tmp_path: Path, bundles: Bundles, write: Write) -> None:
    """Neither the order in which bundles are named nor where a tree is built changes its digest or a byte of it."""
    parts = [write(target, f"N = {number}\n") for number, target in enumerate((NORM, SILU, REDUCE, PLAIN))]
    orders: Iterable[list[Part]] = ([*parts], parts[::-1], [parts[2], parts[0], parts[3], parts[1]])
    trees = [EngineTree.of(CATALOG, order) for order in orders]
    assert len({tree.digest for tree in trees}) == 1
    places = [materialise(tree, bundles, tmp_path / f"store-{at}") for at, tree in enumerate(trees)]
    assert all(place.name == trees[0].digest for place in places)
    assert snapshot(places[0]) == snapshot(places[1]) == snapshot(places[2])
    assert EngineTree.of(CATALOG, parts[:3]).digest != trees[0].digest


def test_the_shared_binding_asks_reduce_first(write: Write) -> None:
    """Parts stand in binding order: by precedence where a rule gives one, else by name."""
    tree = EngineTree.of(CATALOG, [write(target) for target in (PLAIN, NORM, REDUCE, SILU)])
    assert [part.target_id for part in tree.parts] == [SILU, REDUCE, PLAIN, NORM]


def test_one_target_is_replaced_and_can_be_put_back(tmp_path: Path, bundles: Bundles, write: Write) -> None:
    """Only the replaced bundle's folder differs; dropping the replacement gives the old tree, byte for byte."""
    old, other, new = write(SILU, "N = 1\n"), write(NORM), write(SILU, "N = 2\n")
    stack = EngineTree.of(CATALOG, [old, other])
    before = snapshot(materialise(stack, bundles, tmp_path / "a"))
    changed = stack.replaced(new)
    assert [part.content_hash for part in changed.parts] == [new.content_hash, other.content_hash]
    after = snapshot(materialise(changed, bundles, tmp_path / "a"))
    same = {path for path in before if after.get(path) == before[path]}
    assert {path.partition("/")[0] for path in set(before) - same} == {package_of(old.content_hash), DOCUMENT}
    back = changed.rollback()
    assert back.digest == stack.digest
    assert snapshot(materialise(back, bundles, tmp_path / "b")) == before
    discard(tmp_path / "a" / changed.digest)
    assert snapshot(tmp_path / "a" / stack.digest) == before
    assert stack.rollback() is stack


def test_replacing_removes_what_cannot_stand_beside_it(write: Write) -> None:
    """An atomic target takes the place of its members' holders, a member that of the atomic, and both come back."""
    singles = EngineTree.of(CATALOG, [write(target) for target in (*MEMBERS, NORM)])
    both = singles.replaced(write(ATOMIC))
    assert [part.target_id for part in both.parts] == [ATOMIC, NORM]
    assert {both.holder(member) for member in MEMBERS} == {both.parts[0]}
    assert both.rollback() == singles
    one = both.replaced(write(MEMBERS[0], "N = 3\n"))
    assert [part.target_id for part in one.parts] == [MEMBERS[0], NORM]
    assert one.holder(MEMBERS[1]) is None


@pytest.mark.parametrize("targets", [(ATOMIC, MEMBERS[0]), (SILU, SILU), ("made.up",)])
def test_only_active_sets_make_trees(write: Write, targets: tuple[str, ...]) -> None:
    """Displaced, doubled and unknown targets are refused."""
    with pytest.raises(ConfigurationError) as caught:
        EngineTree.of(CATALOG, [write(target) for target in targets])
    assert caught.value.code == "ACTIVE_SET_INVALID"


def test_modules_of_two_bundles_never_meet(tmp_path: Path, bundles: Bundles, write: Write) -> None:
    """Equal file names, absolute imports included, stay inside the bundle they stand in."""
    text = "import helper\nfrom kernels import near\ndef f(): return helper.N, near.N, __name__\n"
    files = [{"helper.py": f"N = {n}\n", "kernels/near.py": f"N = {n}0\n"} for n in (1, 2)]
    parts = [write(target, text, **own) for target, own in zip((SILU, NORM), files, strict=True)]
    place = materialise(EngineTree.of(CATALOG, parts), bundles, tmp_path / "store")
    packages = [package_of(part.content_hash) for part in parts]
    entries = [BundleLoader(str(place / package), package).entry("kernels/k.py", "f") for package in packages]
    assert [entry() for entry in entries] == [
        (1, 10, f"{packages[0]}.kernels.k"),
        (2, 20, f"{packages[1]}.kernels.k"),
    ]


def test_a_tree_is_closed_and_apart_from_the_store(tmp_path: Path, bundles: Bundles, write: Write) -> None:
    """Nothing in a tree may be written or is shared with the bundle store, and nothing unhashed comes along."""
    part = write(SILU)
    source = Path(bundles[part.content_hash])
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "k.cpython-311.pyc").write_bytes(b"code")
    place = materialise(EngineTree.of(CATALOG, [part]), bundles, tmp_path / "store")
    names = {path.name for path in place.rglob("*")}
    assert names == {DOCUMENT, package_of(part.content_hash), "manifest.toml", "kernels", "k.py"}
    for path in (place, *place.rglob("*")):
        assert not path.stat().st_mode & 0o222
        assert path.is_dir() or path.stat().st_nlink == 1
    (source / "kernels" / "k.py").write_text("changed")
    assert (place / package_of(part.content_hash) / "kernels" / "k.py").read_text() != "changed"
    assert [path.name for path in (tmp_path / "store").iterdir()] == [place.name]


def test_what_is_not_the_tree_is_refused(tmp_path: Path, bundles: Bundles, write: Write) -> None:
    """A bundle that is not its hash is never built in, and a tree that was changed is never run from."""
    part = write(SILU)
    tree, store = EngineTree.of(CATALOG, [part]), tmp_path / "store"
    place = materialise(tree, bundles, store)
    assert materialise(tree, bundles, store) == place
    file = place / package_of(part.content_hash) / "kernels" / "k.py"
    file.chmod(0o644)
    file.write_text("def f(): return 1\n")
    with pytest.raises(HostError) as caught:
        materialise(tree, bundles, store)
    assert caught.value.code == "TREE_DAMAGED"
    place.chmod(0o755)
    (place / "more").touch()
    with pytest.raises(HostError, match="not the engine tree"):
        check_tree(tree, place)
    (Path(bundles[part.content_hash]) / "kernels" / "k.py").write_text("def f(): return 2\n")
    with pytest.raises(HostError) as caught:
        materialise(tree, bundles, tmp_path / "other")
    assert (caught.value.code, list((tmp_path / "other").iterdir())) == ("BUNDLE_UNUSABLE", [])
    (tmp_path / "file").touch()
    with pytest.raises(HostError) as caught:
        materialise(tree, bundles, tmp_path / "file" / "store")
    assert caught.value.code == "TREE_NOT_BUILT"


def test_builders_that_race_leave_one_whole_tree(tmp_path: Path, bundles: Bundles, write: Write) -> None:
    """Whoever renames first wins; the others find the same bytes."""
    tree = EngineTree.of(CATALOG, [write(target) for target in (SILU, NORM)])
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(materialise(tree, bundles, tmp_path / "store"))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / "store" / tree.digest] * 6
    assert list((tmp_path / "store").iterdir()) == found[:1]


@pytest.fixture(scope="module")
def fork_server() -> Iterable[Zygote]:
    """One fork server for the attempts of this module."""
    with Zygote.start(preload=PRELOAD) as zygote:
        yield zygote


OVERRIDE_MANIFEST = """bundle_id = "private-override"
abi_version = "cacheon-op-abi-v0"
[competition]
target = "moe.fused_experts"
mode = "slot"
[[ops]]
slot = "moe.fused_experts"
source = "kernels/epilogue.py"
entry = "gemm1_epilogue"
base_kernel = "nvfp4_moe_megakernel"
override_point = "gemm1_epilogue"
dtypes = ["bfloat16", "float16"]
"""
OVERRIDE = """import torch


def gemm1_epilogue_ref(gate, up):
    return torch.nn.functional.silu(gate) * up


try:
    import cutlass
    import cutlass.cute as cute

    @cute.jit
    def gemm1_epilogue(t_compute, gate, up, alpha_val, *act_params):
        return gate
except ImportError:
    pass
"""


def write_override(folder: Path, text: str = OVERRIDE) -> Path:
    """Write the private override bundle."""
    (folder / "kernels").mkdir(parents=True)
    (folder / "manifest.toml").write_text(OVERRIDE_MANIFEST)
    (folder / "kernels" / "epilogue.py").write_text(text)
    return folder


def request_of(tree: Path, folder: Path, target: str, stack: Iterable[Holding] = ()) -> AttemptRequest:
    """Return a request in a tiny arena."""
    request = make_request(describe_bundle(tree, folder / "report.json"), write_arena(folder), target_id=target)
    return msgspec.structs.replace(request, stack=tuple(stack))


def test_an_override_runs_in_an_arm(tmp_path: Path, fork_server: Zygote) -> None:
    """The private bundle is composed in the sandbox, answers every case right, and its tree stands in the evidence."""
    request = request_of(write_override(tmp_path / "bundle"), tmp_path, PLAIN)
    evidence = run_attempt(request, lambda event: None, fork_server, tmp_path / "work")
    assert evidence.incidents == ()
    assert evidence.identity.variants == ("moe.fused_experts/default",)
    tree = EngineTree.of(CATALOG, []).replaced(Part(PLAIN, request.candidate.content_hash))
    assert evidence.identity.candidate_tree_digest == tree.digest
    assert evidence.identity.incumbent_digest == EngineTree.of(CATALOG, []).digest
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (OVERRIDE.replace("* up", "+ up"), "wrong_output", "expected="),
        (OVERRIDE.replace("gate, up)", "gate)", 1), "signature", "py:4: gemm1_epilogue_ref(gate) does not take"),
        (OVERRIDE.replace("_ref", "_other"), "load_failed", "no callable gemm1_epilogue_ref"),
        ("raise KeyError('odd')\n", "load_failed", "kernels/epilogue.py:1: KeyError"),
    ],
)
def test_a_faulty_override_is_its_authors(
    tmp_path: Path, fork_server: Zygote, text: str, kind: str, words: str
) -> None:
    """What the filled hole computes, raises or lacks is told like any other bundle's."""
    request = request_of(write_override(tmp_path / "bundle", text), tmp_path, PLAIN)
    (incident,) = run_attempt(request, lambda event: None, fork_server).incidents
    assert (incident.role, incident.kind) == ("candidate", kind)
    assert words in incident.detail


def test_an_override_is_not_measured_with_devices(tmp_path: Path, fork_server: Zygote) -> None:
    """On an arena of devices the base kernel is absent, and the verdict says so."""
    request = request_of(write_override(tmp_path / "bundle"), tmp_path, PLAIN)
    arena = Path(request.arena)
    arena.write_text(arena.read_text().replace('kind = "cpu"', 'kind = "gpu"'))
    evidence = run_attempt(request, lambda event: None, fork_server)
    verdict = grade(evidence, load_arena(request.arena))
    assert (verdict.outcome, verdict.code) == ("FAIL", "OVERRIDE_BASE_ABSENT")
    assert "nvfp4_moe_megakernel" in verdict.reason


LOOKS = """import os, torch

SEEN = any(os.path.exists("/engine/" + name) for name in OTHERS)
try:
    os.open(__file__, os.O_WRONLY)
    MINE = 0.0
except OSError:
    MINE = 1.0


def silu_and_mul(x, out):
    d = out.shape[-1]
    y = x.float()
    right = 0.0 if SEEN else MINE
    out.copy_(torch.nn.functional.silu(y[..., :d]) * y[..., d:] * right)
"""


def test_an_arm_sees_its_own_bundle_of_the_tree_and_cannot_change_it(
    tmp_path: Path, bundles: Bundles, write: Write, fork_server: Zygote
) -> None:
    """The candidate stands in its incumbent's place; crowned bundles that serve none of its calls are out of sight."""
    manifest = OVERRIDE_MANIFEST.partition("base_kernel")[0].replace(PLAIN, SILU)
    manifest = manifest.replace("gemm1_epilogue", "silu_and_mul")
    stack = [
        Holding(SILU, describe_bundle(EXAMPLES / "silu_slow", tmp_path / "s.json")),
        Holding(NORM, describe_bundle(EXAMPLES / "rmsnorm_fast", tmp_path / "n.json")),
    ]
    text = LOOKS.replace("OTHERS", repr([package_of(one.bundle.content_hash) for one in stack]))
    part = write(SILU, "", **{"manifest.toml": manifest, "kernels/epilogue.py": text})
    request = request_of(Path(bundles[part.content_hash]), tmp_path, SILU, stack)
    evidence = run_attempt(request, lambda event: None, fork_server)
    assert evidence.incidents == ()
    parts = [Part(one.target_id, one.bundle.content_hash) for one in stack]
    assert evidence.identity.incumbent_digest == EngineTree.of(CATALOG, parts).digest


GAP = """import torch


def silu_and_mul(x, out):
    d = out.shape[-1]
    y = x.float()
    out.copy_(torch.nn.functional.silu(y[..., :d]) * y[..., d:])
"""


@pytest.mark.parametrize("crowned", [False, True])
def test_a_gap_in_the_domain_is_never_served_in_the_candidates_arm(
    tmp_path: Path, fork_server: Zygote, crowned: bool
) -> None:
    """Two variants leave a shape between them to stock: asked of nobody, or of the crowned bundle and a stock arm."""
    tree = tmp_path / "bundle"
    (tree / "kernels").mkdir(parents=True)
    (tree / "kernels" / "k.py").write_text(GAP)
    row = '[[ops]]\nslot = "activation.silu_and_mul"\nsource = "kernels/k.py"\nentry = "silu_and_mul"\n'
    text = 'bundle_id = "b"\nabi_version = "cacheon-op-abi-v0"\ncompetition.target = "activation.silu_and_mul"\n'
    for name, bound in (("small", {"max": 16}), ("large", {"min": 128})):
        (tree / f"{name}.json").write_text(json.dumps({"capabilities": {"num_tokens": bound}}))
        text += f'{row}variant = "{name}"\nmetadata = "{name}.json"\n'
    (tree / "manifest.toml").write_text(text)
    stack = [Holding(SILU, describe_bundle(EXAMPLES / "silu_fast", tmp_path / "s.json"))] if crowned else []
    request = request_of(tree, tmp_path, SILU, stack)
    arena = Path(request.arena)
    shapes = "shapes = [{ num_tokens = 8, d = 64 }, { num_tokens = 64, d = 64 }, { num_tokens = 256, d = 64 }]"
    arena.write_text(arena.read_text().replace("shapes = [{ num_tokens = 64, d = 1024 }]", shapes))
    arena.write_text(arena.read_text().replace("blocks_per_launch = 2", "blocks_per_launch = 3"))
    docket = open_docket(request)
    routes = docket.candidate_routes(docket.shapes)
    assert [one.is_stock for one in routes.served()] == [False, True, False]
    evidence = run_attempt(request, lambda event: None, fork_server)
    assert evidence.incidents == ()
    assert evidence.identity.variants == (f"{SILU}/large", f"{SILU}/small")
    assert evidence.identity.gaps == (() if crowned else (1,))
    launch = evidence.launches[0]
    assert [block.case for block in launch.blocks] == ([0, 1, 2] if crowned else [0, 2, 0])
    assert launch.candidate.process.count("+") == (1 if crowned else 0)  # stock's own arm, where it is measured
    assert launch.baseline.process.count("+") == 0
    assert grade(evidence, load_arena(request.arena)).outcome in ("FAIL", "RETRY")  # two launches decide nothing
