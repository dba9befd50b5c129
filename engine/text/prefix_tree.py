"""The encodings of all prefixes of a piece of text, as a tree."""

from __future__ import annotations

import heapq

from engine.text.vocabulary import Vocabulary


class PrefixTree:
    """Encodes one pre-token that grows at its end, and tells which tokens are certain.

    Dropping the last token of a prefix's encoding gives the encoding of a shorter prefix. So each
    prefix, named by its length in bytes, needs only a parent and a last token, and the encodings
    are the paths to the root. Work per byte and memory are bounded by the longest token, but
    for what is held back.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.end = 0
        self._vocabulary = vocabulary
        self._root = 0  # all before it was given out
        self._parent: dict[int, int] = {}
        self._token: dict[int, int] = {}
        # Where a token that reaches beyond the end may begin, the token before it, and its head.
        self._open: list[tuple[int, int | None, bytes]] = []
        self.cut = 0  # where the piece may turn out to end
        self._at_cut: dict[int, int] = {}  # nearest ancestor at or before the cut, if beyond it

    def push(self, data: bytes) -> None:
        """Append bytes."""
        look_up, may_follow = self._vocabulary.look_up, self._vocabulary.may_follow
        for index in range(len(data)):
            byte = data[index : index + 1]
            starts = [*self._open, (self.end, self._token.get(self.end), b"")]
            self.end += 1
            self._open = []
            for start, before, head in starts:
                head += byte
                token, is_head = look_up(head)
                if token is not None and may_follow(before, token):
                    self._add(start, token)
                if is_head:
                    self._open.append((start, before, head))

    def cut_here(self) -> None:
        """Note that the piece may turn out to end here, also when more is pushed."""
        self.cut = self.end
        self._at_cut = {}

    def settle(self, end: int) -> list[int]:
        """Give out the tokens that every continuation leaves in place.

        The piece may end at `self.end`, at `end`, at a cut, or go on, with a token that begins at
        `self.end` or at an open start.
        """
        may_grow = self._vocabulary.may_grow
        self._open = [entry for entry in self._open if may_grow(entry[1], entry[2])]
        leaves = {self.end, end, *(start for start, _, _ in self._open)}
        if self.cut:
            leaves = {self.cut, *(self._at_cut.get(leaf, leaf) for leaf in leaves)}
        return self.take(self._meet(leaves))

    def take(self, position: int) -> list[int]:
        """Give out the encoding up to `position`; only what begins there or later remains."""
        ids = []
        node = position
        while node != self._root:
            ids.append(self._token[node])
            node = self._parent[node]
        for node in range(self._root, position):
            self._parent.pop(node, None)
            self._token.pop(node, None)
        self._root = position
        ids.reverse()
        return ids

    def _add(self, parent: int, token: int) -> None:
        self._parent[self.end] = parent
        self._token[self.end] = token
        if self.cut:
            self._at_cut[self.end] = self._at_cut.get(parent, parent)

    def _meet(self, leaves: set[int]) -> int:
        """Return the deepest node that is each leaf or an ancestor of it."""
        heap = [-leaf for leaf in leaves]
        heapq.heapify(heap)
        while len(heap) > 1:
            deepest = heapq.heappop(heap)
            if heap[0] != deepest:
                heapq.heappush(heap, -self._parent[-deepest])
        return -heap[0]
