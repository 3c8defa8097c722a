"""Templates: recipes of root file systems, each built once and shared by all its sandboxes."""

from paddock.adapters.providers.local.templates.builds import BuiltTemplate
from paddock.adapters.providers.local.templates.sources import SnapshotParts
from paddock.adapters.providers.local.templates.store import TemplateStore

__all__ = ["BuiltTemplate", "SnapshotParts", "TemplateStore"]
