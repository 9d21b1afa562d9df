//! Applies [`crate::AttributeOptions`] to every node of the tree, for all kinds of sources: times, Android's owners and modes,
//! SELinux labels.

use std::path::PathBuf;

use ferofs_format::inode::Timestamp;

use crate::error::{Error, Result};
use crate::options::fs_config::{FsConfig, capability_xattr};
use crate::options::{AttributeOptions, RunOptions};
use crate::paths::as_path;
use crate::tree::{NodeId, Tree};

/// Applies `options` to every node of `tree`.
pub(crate) fn apply(tree: &mut Tree, options: &AttributeOptions, run: &RunOptions) -> Result<()> {
    if let Some(newest) = options.newest_time {
        let newest = Timestamp { secs: newest, nanos: 0 };
        for node in tree.nodes.iter_mut() {
            node.mtime = Timestamp::from(node.mtime).min(newest).into();
        }
    }
    let target = &options.target;
    if target.labels.is_some() || target.fs_config.is_some() {
        for id in tree.ids() {
            run.check_cancelled()?;
            let path = target_path(&target.mount_point, &tree.path_bytes(id));
            if let Some(config) = &target.fs_config {
                apply_fs_config(tree, id, config, &path)?;
            }
            if let Some(labels) = &target.labels {
                let absolute = [b"/".as_slice(), &path].concat();
                if let Some(label) = labels.lookup(&absolute, tree.node(id).kind.file_type()) {
                    set_xattr(tree, id, b"security.selinux", label, &absolute)?;
                }
            }
        }
    }
    Ok(())
}

/// The path of a file where the image will be mounted, without a leading slash.
fn target_path(mount_point: &[u8], path: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = [mount_point, path].into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(&b'/')
}

fn apply_fs_config(tree: &mut Tree, id: NodeId, config: &FsConfig, path: &[u8]) -> Result<()> {
    let own = if id == NodeId::ROOT {
        config.lookup(path).or_else(|| config.lookup(b""))
    } else {
        config.lookup(path)
    };
    let Some(entry) = own else {
        return Err(Error::NotInFsConfig(PathBuf::from(as_path(path))));
    };
    let node = &mut tree.nodes[id.index()];
    (node.uid, node.gid, node.permissions) = (entry.uid, entry.gid, entry.permissions);
    if entry.capabilities != 0 {
        set_xattr(tree, id, b"security.capability", &capability_xattr(entry.capabilities), path)?;
    }
    Ok(())
}

fn set_xattr(tree: &mut Tree, id: NodeId, name: &[u8], value: &[u8], path: &[u8]) -> Result<()> {
    let old = tree.node(id).xattrs;
    let new = tree.xattrs.replace(old, name, Some(value)).map_err(|e| e.of(as_path(path)))?;
    tree.nodes[id.index()].xattrs = new;
    Ok(())
}
