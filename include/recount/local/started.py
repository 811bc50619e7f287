"""A ``with`` block around something that is started and stopped, and leaves nothing behind when the start fails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Started(ABC):
    """Started on entry, stopped on exit; also stopped when the start fails or is interrupted."""

    @abstractmethod
    def start(self) -> None:
        """Start; returns when it serves."""

    @abstractmethod
    def stop(self) -> None:
        """Stop what runs, also after half a start."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
