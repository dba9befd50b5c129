"""Text that arrives in pieces, to the ids of the whole, each as early as it is certain."""

from __future__ import annotations

from engine.text.nfc import NfcStream
from engine.text.plain import PlainTokenizer, join_surrogates
from engine.text.prefix_tree import PrefixTree
from engine.text.pretoken import NEXT, Kind, State, kind_of, state_after


class IncrementalTokenizer:
    """Tokenizes one text; all ids together are `PlainTokenizer.encode` of the whole text.

    An id is given out once every continuation, also none, leaves it in place, and is never
    retracted. Work per delta does not grow with the text before it. A tokenizer is for one text.

    Text goes through three stages that each hold back little: characters (surrogate pairs, NFC),
    pre-tokens (a state machine), and tokens (a tree of the open piece's encodings).
    """

    def __init__(self, plain: PlainTokenizer) -> None:
        self._vocabulary = plain.vocabulary
        self._high_surrogate = ""
        self._characters = NfcStream()
        self._ids: list[int] = []
        self._state: State = State.EMPTY
        self._tree = PrefixTree(self._vocabulary)
        self._last_char = ""
        self._after_newline = PrefixTree(self._vocabulary)
        self._blanks_after_newline = 0

    def feed(self, delta: str) -> list[int]:
        """Add text of any length; return the ids that are now certain, often none."""
        text = self._high_surrogate + delta
        self._high_surrogate = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        self._add(text.removesuffix(self._high_surrogate))
        # A character that is held back may still change, but not its kind.
        if (head := self._characters.head) is not None:
            self._make_way_for(kind_of(head))
        self._ids += self._tree.settle(self._before_last_blank())
        return self._take_ids()

    def finish(self) -> list[int]:
        """End the text; return the remaining ids. What is fed next is another text."""
        self._add(self._high_surrogate)
        self._high_surrogate = ""
        for char in self._characters.finish():
            self._join(char)
        if self._state is State.LINES:
            self._close_lines()
        self._close_piece()
        return self._take_ids()

    def _add(self, text: str) -> None:
        for char in self._characters.feed(join_surrogates(text)):
            self._join(char)

    def _join(self, char: str) -> None:
        kind = kind_of(char)
        self._make_way_for(kind)
        self._state = state_after(self._state, kind, char)
        self._tree.push(char.encode())
        self._last_char = char
        if self._state is State.LINES:
            self._join_lines(kind, char)
        elif self._state is State.COMPLETE:
            self._close_piece()

    def _join_lines(self, kind: Kind, char: str) -> None:
        """Keep two encodings of the white space after a newline.

        It stays in the piece if another newline follows, and else begins a piece of its own.
        """
        if kind is Kind.NEWLINE:
            self._tree.cut_here()
            self._after_newline = PrefixTree(self._vocabulary)
            self._blanks_after_newline = 0
        else:
            self._after_newline.push(char.encode())
            self._blanks_after_newline += 1

    def _make_way_for(self, kind: Kind) -> None:
        """Close the pieces that a character of this kind cannot join."""
        while kind not in NEXT[self._state]:
            if self._state is State.LINES:
                self._close_lines()
            elif self._state is State.BLANKS:
                self._close_all_but_last_blank()
            else:
                self._close_piece()

    def _close_piece(self) -> None:
        self._ids += self._tree.take(self._tree.end)
        self._start_piece()

    def _close_lines(self) -> None:
        """Close the piece after its last newline; what remains is white space without one."""
        self._ids += self._tree.take(self._tree.cut)
        self._tree = self._after_newline
        if self._blanks_after_newline > 1:
            self._state = State.BLANKS
        else:
            self._state = self._one_blank() if self._blanks_after_newline else State.EMPTY

    def _close_all_but_last_blank(self) -> None:
        """Close white space before its last character, which may begin the next piece."""
        self._ids += self._tree.take(self._before_last_blank())
        self._start_piece()
        self._tree.push(self._last_char.encode())
        self._state = self._one_blank()

    def _start_piece(self) -> None:
        self._tree = PrefixTree(self._vocabulary)
        self._state = State.EMPTY

    def _one_blank(self) -> State:
        return State.ONE_SPACE if self._last_char == " " else State.ONE_BLANK

    def _before_last_blank(self) -> int:
        """Where white space is cut if it ends before a visible character; else the end."""
        is_cut = self._state is State.BLANKS
        return self._tree.end - (len(self._last_char.encode()) if is_cut else 0)

    def _take_ids(self) -> list[int]:
        ids, self._ids = self._ids, []
        return ids
