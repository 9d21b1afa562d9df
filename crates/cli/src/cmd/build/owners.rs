//! Options for the owners of all files.

use ferofs::build::Options;

/// Options for the owners of all files.
#[derive(clap::Args)]
pub(super) struct OwnerArgs {
    /// Set the owner of all files to this user ID
    #[arg(long, value_name = "UID")]
    force_uid: Option<u32>,

    /// Set the group of all files to this group ID
    #[arg(long, value_name = "GID")]
    force_gid: Option<u32>,

    /// Set the owner and the group of all files to root
    #[arg(long, conflicts_with_all = ["force_uid", "force_gid"])]
    all_root: bool,

    /// Add N to the user ID of every file and to those in ACLs; N may be negative
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    uid_offset: i64,

    /// Add N to the group ID of every file and to those in ACLs; N may be negative
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    gid_offset: i64,
}

impl OwnerArgs {
    pub(super) fn apply(&self, options: &mut Options) {
        let root = self.all_root.then_some(0);
        options.attributes.force_uid = self.force_uid.or(root);
        options.attributes.force_gid = self.force_gid.or(root);
        options.attributes.uid_offset = self.uid_offset;
        options.attributes.gid_offset = self.gid_offset;
    }
}
