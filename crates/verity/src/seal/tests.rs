use std::io::Read;

use super::*;

#[test]
fn a_written_seal_verifies_and_names_the_changed_block() {
    let image: Vec<u8> = (0..4096 * 300_usize).map(|n| (n / 5) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    let (params, uuid) =
        (Params { salt: b"salt".to_vec(), ..Params::default() }, Some(Uuid([9; 16])));
    let len = image.len() as u64;
    let (seal, root) = Seal::write(&image, len, params, uuid, 2, &file, 8192).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, 8192 + seal.byte_len().unwrap());
    assert_eq!(Seal::read(&bytes, 8192).unwrap(), seal);
    assert!(matches!(Seal::read(&bytes, 4096), Err(Error::Superblock(_))));
    assert!(matches!(Seal::read(&bytes, u64::MAX), Err(Error::Short { .. })));
    verify_all(&seal.verified(&image, &bytes, root).unwrap(), 2).unwrap();
    let mut changed = image.clone();
    changed[4096 * 280 + 17] ^= 4;
    let error = verify_all(&seal.verified(&changed, &bytes, root).unwrap(), 2).unwrap_err();
    assert!(
        matches!(error, Error::Integrity(error) if !error.is_hash && error.block == 280),
        "{error}"
    );
    // The superblock is not covered, but a false one finds nothing with this root.
    let mut other = seal.clone();
    other.superblock.params.salt = b"sale".to_vec();
    assert!(verify_all(&other.verified(&image, &bytes, root).unwrap(), 2).is_err());
}

#[test]
fn a_seal_follows_a_complete_image() {
    use ferofs_format::BlockSize;
    let image = |bits, blocks, ext_slots| {
        let mut superblock = ErofsSuperblock::new(BlockSize::from_bits(bits).unwrap());
        (superblock.blocks, superblock.ext_slots) = (blocks, ext_slots);
        superblock.incompat = ferofs_format::Incompat::BIT48;
        superblock.root = ferofs_format::Nid::new(36);
        [vec![0; erofs::OFFSET], superblock.to_bytes().unwrap()].concat()
    };
    let position =
        |bits, blocks, ext_slots| appended_position(&image(bits, blocks, ext_slots)).ok();
    assert_eq!([position(12, 3, 0), position(12, 1, 255)], [Some(3 * 4096), Some(4096)]);
    assert_eq!([position(9, 8, 0), position(9, 9, 0)], [Some(4096), Some(2 * 4096)]);
    assert_eq!(position(16, 1 << 47, 0), Some(1 << 63));
    assert!(matches!(appended_position(&vec![0; 8192]), Err(Error::NoImage)));
    let has_end = |len, blocks| {
        let mut image = image(9, blocks, 0);
        image.resize(len, 0);
        check_end(&image).is_ok()
    };
    assert!(has_end(3 * 512, 3) && has_end(4096, 3) && has_end(8192, 8) && has_end(9 * 512, 9));
    assert!(!has_end(8 * 512, 9) && !has_end(3 * 512, 16));
}

#[test]
fn images_of_parts_of_blocks_are_refused() {
    let file = tempfile::tempfile().unwrap();
    let write = |len, position| {
        Seal::write(&vec![0_u8; 5000], len, Params::default(), None, 1, &file, position)
    };
    assert!(matches!(write(5000, 0), Err(Error::Parameter { parameter: "data block size", .. })));
    assert!(matches!(write(4096, 100), Err(Error::Parameter { parameter: "hash block size", .. })));
    assert!(write(4096, 0).is_ok());
}
