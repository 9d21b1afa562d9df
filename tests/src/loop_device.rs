//! Files as loop devices.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::need;
use crate::run::Run;

/// A loop device. Dropping the value detaches it.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Attaches `file`, with more `options` of losetup(8); if that is not possible, says that
    /// the test is skipped.
    pub fn attach(file: &Path, options: &[&str]) -> Option<Self> {
        let losetup = need::root().then(|| need::tool("losetup")).flatten()?;
        let attached = Run::new(losetup).args(["--find", "--show"]).args(options).arg(file).run();
        if attached.code != 0 {
            need::lacks("loop devices");
            return None;
        }
        Some(Self(attached.text().trim().into()))
    }

    /// The path of the device.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl AsRef<OsStr> for LoopDevice {
    fn as_ref(&self) -> &OsStr {
        self.0.as_ref()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // If the device is busy, Linux detaches it later.
        let _ = Run::new("losetup").args(["--detach".as_ref(), self.0.as_os_str()]).try_run();
    }
}
