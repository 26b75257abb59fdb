"""What became of every planted fault, once: shown where a run would take minutes."""

from .stored import StoredStories, StoredStory, load_stories

__all__ = ["StoredStories", "StoredStory", "load_stories"]
