"""Where sandboxes' disks live: volumes that are made, copied, limited and removed."""

from paddock.adapters.providers.local.storage.opening import open_storage
from paddock.adapters.providers.local.storage.pool import unmount_pool
from paddock.adapters.providers.local.storage.volumes import Storage

__all__ = ["Storage", "open_storage", "unmount_pool"]
