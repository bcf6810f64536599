"""Decides which files of a lake stay, go and come. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from compactor.lakes.lake import LakeFile
from compactor.lakes.lineage import Lineage
from compactor.lakes.pieces import Piece, node_of
from compactor.table.entry import FragmentEntry


class Difference(Struct, frozen=True):
    """What makes the files of a lake those of a version."""

    kept: Sequence[LakeFile]
    removes: Sequence[LakeFile]
    adds: Sequence[Piece]


class Rewrite(Struct, frozen=True):
    """Files that go and pieces that come whose rows are the same, once what arrived since is added."""

    removes: Sequence[LakeFile]
    arrived: Sequence[Piece]
    """Fragments that came since and that compactions have merged already."""
    adds: Sequence[Piece]


def difference(
    files: Iterable[LakeFile], pieces: Iterable[Piece], sizes: Mapping[str, int]
) -> Difference:
    """Compares files by their pieces. If two files hold one piece, both go and it comes again.

    sizes: the bytes of the files that are there, by name: one that is gone or cut off comes again, too.
    """
    wanted = {piece.id: piece for piece in pieces}
    by_piece: dict[str, list[LakeFile]] = {}
    for file in files:
        by_piece.setdefault(file.piece, []).append(file)
    kept = [
        only[0]
        for piece, only in by_piece.items()
        if piece in wanted and len(only) == 1 and sizes.get(only[0].name) == only[0].size_bytes
    ]
    staying = {file.name for file in kept}
    removes = [file for some in by_piece.values() for file in some if file.name not in staying]
    held = {file.piece for file in kept}
    return Difference(kept, removes, [p for p in wanted.values() if p.id not in held])


def rewrites_of(
    change: Difference,
    lineage: Lineage,
    nodes_of: Mapping[str, frozenset[str]],
    piece_of: Callable[[FragmentEntry], Piece] | None,
) -> list[Rewrite]:
    """Returns the parts of a difference in which compactions alone made the pieces that come, of fragments in
    the files that go and fragments that arrived since.

    nodes_of: the fragments of the pieces in files, by id. piece_of: returns the piece of one fragment; None
    if rows of fragments are merged, so that what arrived since can't stand for itself. The rows are expected
    to be the same, as compactions keep rows unless they have expired; the caller compares their numbers.
    """
    held = {file.name: nodes_of[file.piece] for file in change.removes}
    gone = {node: file for file in change.removes for node in held[file.name]}
    coming = {piece.id: piece for piece in change.adds}
    known = frozenset(gone)
    sources = {
        piece.id: set().union(*(lineage.sources(node_of(e), known) for e in piece.entries))
        for piece in change.adds
    }
    rewrites = []
    for group in _connected(sources, held.values()):
        nodes = set().union(*(sources[piece] for piece in group))
        files = {gone[node].name: gone[node] for node in sorted(nodes & known)}
        others = nodes - known
        own = {node_of(entry) for piece in group for entry in coming[piece].entries}
        is_whole = all(held[name] <= nodes for name in files)
        if not (files and is_whole and others <= lineage.arrived.keys() and not others & own):
            continue
        if others and piece_of is None:
            continue
        arrived = [piece_of(lineage.arrived[node]) for node in sorted(others)] if piece_of else []
        rewrites.append(Rewrite(list(files.values()), arrived, [coming[p] for p in group]))
    return rewrites


def _connected(
    sources: Mapping[str, set[str]], held: Iterable[frozenset[str]]
) -> Iterator[list[str]]:
    """Yields the pieces that share sources, or sources in one file, together."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while (above := parent.setdefault(node, node)) != node:
            parent[node] = node = parent.setdefault(above, above)
        return node

    for nodes in (*sources.values(), *held):
        first, *others = sorted(nodes)
        for node in others:
            parent[root(node)] = root(first)
    groups: dict[str, list[str]] = {}
    for piece, nodes in sources.items():
        groups.setdefault(root(min(nodes)), []).append(piece)
    yield from groups.values()
