use super::*;
use proptest::prelude::*;

fn superblock() -> impl Strategy<Value = Superblock> {
    let geometry = (9u8..=16, any::<u16>(), any::<u64>(), any::<i64>(), 0u32..1_000_000_000);
    let places = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>());
    let names = (any::<[u8; 16]>(), any::<[u8; 16]>(), any::<u16>(), 1u64..1 << 63, any::<u16>());
    (geometry, places, names).prop_map(|(g, p, n)| {
        let mut sb = Superblock::new(BlockSize::from_bits(g.0).unwrap());
        sb.root = Nid::new(g.1.into());
        sb.inodes = g.2;
        sb.epoch = g.3;
        sb.fixed_nsec = g.4;
        sb.blocks = p.0.into();
        sb.meta = BlockAddr::new(p.1.into());
        sb.xattr = BlockAddr::new(p.2.into());
        sb.build_time = p.3;
        sb.compat = Compat::SB_CHKSUM | Compat::MTIME;
        if p.4 {
            sb.incompat = Incompat::BIT48
                | Incompat::COMPR_CFGS
                | Incompat::FRAGMENTS
                | Incompat::DEVICE_TABLE;
            sb.compression = Compression::Configured { available: n.2 };
            sb.root = Nid::new(n.3);
            sb.blocks |= u64::from(n.4) << 32;
            sb.packed = Some(Nid::new(n.3));
            sb.extra_devices = n.4;
            sb.device_table = BytePos::new(u64::from(n.2) * 128);
            sb.incompat |= Incompat::METABOX | Incompat::XATTR_PREFIXES;
            sb.ext_slots = 1;
            sb.metabox = Some(Nid::new(n.3 >> 1));
            sb.xattr_prefixes = Some(PrefixTable {
                count: 3,
                start: BytePos::new(n.4.into()).align_up(4).unwrap(),
            });
        }
        sb.uuid = n.0;
        sb.volume_name = n.1;
        sb
    })
}

proptest! {
    #[test]
    fn round_trips_with_checksum(sb in superblock()) {
        let mut covered = sb.to_bytes().unwrap();
        covered.resize(sb.checksum_len().max(covered.len()), 7);
        let len = sb.checksum_len();
        write_checksum(&mut covered[..len]);
        prop_assert_eq!(Superblock::parse(&covered), Ok(sb.clone()));
        prop_assert_eq!(sb.verify_checksum(&covered), Ok(()));
        covered[40] ^= 1;
        prop_assert!(sb.verify_checksum(&covered).is_err());
    }

    #[test]
    fn garbage_never_panics(mut bytes: Vec<u8>) {
        let _ = Superblock::parse(&bytes);
        bytes.splice(0..0, MAGIC.to_le_bytes());
        let _ = Superblock::parse(&bytes);
    }
}

#[test]
fn unknown_features_are_named_as_such() {
    let mut bytes = Superblock::new(BlockSize::DEFAULT).to_bytes().unwrap();
    bytes[0x52] = 1;
    let error = Superblock::parse(&bytes).unwrap_err();
    assert_eq!(error.fault, Fault::UnknownFeatures(0x1_0000));
    assert!(error.fault.is_unsupported() && Fault::NotBuilt("zstd").is_unsupported());
    assert!(!Fault::Magic(0).is_unsupported());
}

/// Fields that mean nothing without a feature, and values that no image has.
#[test]
fn fields_that_depend_on_features() {
    let parse = |incompat: Incompat, changes: &[(usize, &[u8])]| {
        let superblock =
            Superblock { incompat, root: Nid::new(36), ..Superblock::new(BlockSize::DEFAULT) };
        let mut bytes = superblock.to_bytes()?;
        bytes.resize(SIZE + EXT_SLOT_SIZE, 0);
        for (at, change) in changes {
            bytes[*at..*at + change.len()].copy_from_slice(change);
        }
        Superblock::parse(&bytes)
    };
    let none = Incompat::empty();
    let place = |incompat, nid| {
        let parsed = parse(incompat, &[(14, &[9]), (112, &[nid])]).unwrap();
        (parsed.root.get(), parsed.blocks)
    };
    assert_eq!(place(none, 36), (9, 0));
    assert_eq!(place(Incompat::BIT48, 36), (36, 9 << 32));
    // Linux then reads the field of images without the feature.
    assert_eq!(place(Incompat::BIT48, 0), (9, 0));
    let (nid, in_metabox) = (40u64.to_le_bytes(), (40u64 | 1 << 63).to_le_bytes());
    let packed =
        |incompat, nid: [u8; 8]| parse(incompat, &[(96, &nid)]).map(|parsed| parsed.packed);
    assert_eq!(packed(Incompat::FRAGMENTS, nid), Ok(Some(Nid::new(40))));
    assert_eq!(packed(Incompat::FRAGMENTS, [0; 8]), Ok(None));
    assert_eq!(packed(none, in_metabox), Ok(None));
    assert!(packed(Incompat::FRAGMENTS, in_metabox).is_err());
    let metabox = |nid: [u8; 8]| parse(Incompat::METABOX, &[(13, &[1]), (128, &nid)]);
    assert_eq!(metabox(nid).unwrap().metabox, Some(Nid::new(40)));
    assert!(metabox(in_metabox).is_err());
    let devices = |incompat| parse(incompat, &[(86, &[1])]).map(|parsed| parsed.extra_devices);
    assert!(devices(none).is_err() && devices(Incompat::DEVICE_TABLE) == Ok(1));
    assert!(parse(none, &[(90, &[1])]).is_err(), "directory blocks of another size");
    let filter =
        |compat, other| parse(none, &[(8, &[compat]), (104, &[other])]).unwrap().xattr_filter;
    assert_eq!([filter(4, 0), filter(4, 1), filter(0, 0)], [true, false, false]);
}

#[test]
fn a_large_root_nid_needs_48bit() {
    let mut sb = Superblock::new(BlockSize::DEFAULT);
    sb.root = Nid::new(1 << 16);
    assert!(sb.to_bytes().is_err());
    sb.incompat = Incompat::BIT48;
    assert_eq!(Superblock::parse(&sb.to_bytes().unwrap()).unwrap().root, sb.root);
}

#[test]
fn covers_the_rest_of_the_first_block() {
    assert_eq!(covered_len(BlockSize::DEFAULT), 3072);
    assert_eq!(BlockSize::from_bits(10).map(covered_len), Some(1024));
    assert_eq!(BlockSize::from_bits(9).map(covered_len), Some(512));
}
