"""Tests; the directories mirror src/paddock."""
