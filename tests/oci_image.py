"""An OCI image layout made of a root file system, without a registry or an engine."""

import hashlib
import json
import os
import subprocess
from pathlib import Path


def build(root: Path, layout: Path) -> str:
    """The layout's reference; made once. One uncompressed layer holds the whole root."""
    reference = f"oci:{layout}:latest"
    if layout.exists():
        return reference
    draft = layout.with_name(f".{layout.name}-{os.getpid()}")
    blobs = draft / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layer = blobs / "layer"
    subprocess.run(
        ["tar", "-C", str(root), "--one-file-system", "-cf", str(layer), "."], check=True
    )
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    layer.rename(blobs / digest)
    config = _put(
        blobs,
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
            "os": "linux",
            "config": {"Env": ["FROM_IMAGE=yes"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        },
        "application/vnd.oci.image.config.v1+json",
    )
    tar = {
        "mediaType": "application/vnd.oci.image.layer.v1.tar",
        "digest": f"sha256:{digest}",
        "size": (blobs / digest).stat().st_size,
    }
    manifest = _put(
        blobs,
        {"schemaVersion": 2, "config": config, "layers": [tar]},
        "application/vnd.oci.image.manifest.v1+json",
    )
    manifest["annotations"] = {"org.opencontainers.image.ref.name": "latest"}
    (draft / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    (draft / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    draft.rename(layout)
    return reference


def _put(blobs: Path, content: object, kind: str) -> dict[str, object]:
    data = json.dumps(content).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}
