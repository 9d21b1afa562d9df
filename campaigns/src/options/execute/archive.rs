//! Creates the archives and OCI image layouts that commands read.

use std::fs;

use anyhow::Result;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::options::execute::workspace::{Stop, Workspace};
use crate::options::generate::sequence::Packed;

/// Makes the archive `file` of the directory `dir`, with everything that a tar archive can contain.
pub(crate) fn tar(workspace: &mut Workspace, dir: &str, file: &str, sparse: bool) -> Result<(), Stop> {
    workspace.allow(file);
    let mut words = vec![
        "--format=pax",
        "--xattrs",
        "--xattrs-include=*",
        "--acls",
        "--sort=name",
        "--warning=no-file-ignored",
    ];
    if sparse {
        words.push("-S");
    }
    words.extend(["-cf", file, "-C", dir, "."]);
    workspace.tool("tar", &words, None)?;
    Ok(())
}

/// Compresses `file` and returns the name of the result.
pub(crate) fn pack(workspace: &mut Workspace, file: &str, packed: Packed) -> Result<String, Stop> {
    let (tool, suffix) = match packed {
        Packed::Gzip => ("gzip", "gz"),
        Packed::Xz => ("xz", "xz"),
        Packed::Zstd => ("zstd", "zst"),
        Packed::Plain | Packed::Sparse | Packed::Pipe => return Ok(file.to_owned()),
    };
    let name = format!("{file}.{suffix}");
    let outcome = workspace.tool(tool, &["-c", "-1", file], None)?;
    workspace.file(&name, &outcome.stdout)?;
    Ok(name)
}

/// Makes an image layout in the directory `oci` with one image of these layers, and an empty image for another architecture.
pub(crate) fn layout(workspace: &mut Workspace, layers: &[String]) -> Result<(), Stop> {
    workspace.directory("oci")?;
    fs::create_dir_all(workspace.path("oci/blobs/sha256"))?;
    let mut listed = Vec::new();
    for layer in layers {
        let bytes = fs::read(workspace.path(layer))?;
        let kind = match layer.rsplit('.').next() {
            Some("gz") => "application/vnd.oci.image.layer.v1.tar+gzip",
            Some("zst") => "application/vnd.oci.image.layer.v1.tar+zstd",
            _ => "application/vnd.oci.image.layer.v1.tar",
        };
        listed.push(blob(workspace, kind, &bytes)?);
    }
    let wanted = image(workspace, "s390x", &listed)?;
    let other = image(workspace, "riscv64", &[])?;
    let index = json!({"schemaVersion": 2, "manifests": [other, wanted]});
    fs::write(workspace.path("oci/index.json"), index.to_string())?;
    fs::write(workspace.path("oci/oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    Ok(())
}

fn image(workspace: &Workspace, machine: &str, layers: &[serde_json::Value]) -> Result<serde_json::Value> {
    let config =
        json!({"architecture": machine, "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}});
    let config = blob(workspace, "application/vnd.oci.image.config.v1+json", config.to_string().as_bytes())?;
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
    let mut manifest =
        blob(workspace, "application/vnd.oci.image.manifest.v1+json", manifest.to_string().as_bytes())?;
    manifest["platform"] = json!({"architecture": machine, "os": "linux"});
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": machine});
    Ok(manifest)
}

fn blob(workspace: &Workspace, kind: &str, bytes: &[u8]) -> Result<serde_json::Value> {
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(workspace.path("oci/blobs/sha256").join(&digest), bytes)?;
    Ok(json!({"mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len()}))
}
