use super::*;
use ferofs_format::{BlockSize, BytePos, Incompat, Nid};

/// An image of only a superblock, changed by `change`, with a field of a later version, and bytes
/// after the superblock.
fn area(change: impl FnOnce(&mut Superblock), after: &[u8]) -> SuperblockArea {
    let mut superblock = Superblock::new(BlockSize::DEFAULT);
    superblock.compat = Compat::SB_CHKSUM;
    superblock.blocks = 1;
    change(&mut superblock);
    let mut image = vec![0; 4096];
    let start = SECTOR_POS as usize;
    image[start..start + superblock.size()].copy_from_slice(&superblock.to_bytes().unwrap());
    image[start + 0x78] = 9;
    image[start + superblock.size()..][..after.len()].copy_from_slice(after);
    superblock::write_checksum(&mut image[start..]);
    SuperblockArea::read(&image).unwrap()
}

#[test]
fn a_new_sector_keeps_unknown_fields_and_has_its_checksum() {
    let area = area(|_| (), &[]);
    let mut new = area.superblock().clone();
    (new.inodes, new.blocks) = (5, 3);
    let configs = [1, 2, 3];
    let sector = area.rewrite(&new, Some(&configs)).unwrap();
    let mut image = vec![0; 4096];
    image[SECTOR_POS as usize..][..SECTOR].copy_from_slice(&sector);
    assert_eq!(SuperblockArea::read(&image).unwrap().superblock(), &new);
    assert_eq!((sector[0x78], &sector[128..131]), (9, &configs[..]));
    assert!(area.rewrite(&new, Some(&[1; SECTOR - 128])).is_ok());
    assert!(area.rewrite(&new, Some(&[1; SECTOR - 127])).is_err());
    let resized = area.resize(&sector, 5 * 4096 + 1).unwrap();
    let resized = Superblock::parse(&resized).unwrap();
    assert_eq!((resized.blocks, resized.inodes), (6, 5));
}

/// The root can be in another field than ours; the new sector must not have it in both.
#[test]
fn the_root_moves_to_the_field_of_64_bits() {
    let narrow = area(|superblock| superblock.root = Nid::new(77), &[]);
    let mut sector = narrow.sector;
    sector[0x50] = Incompat::BIT48.bits() as u8;
    let superblock = Superblock::parse(&sector).unwrap();
    assert_eq!((superblock.root, superblock.blocks), (Nid::new(77), 1));
    let area = SuperblockArea { sector, superblock: superblock.clone(), ..narrow };
    let sector = area.rewrite(&superblock, None);
    assert_eq!(Superblock::parse(&sector.unwrap()).unwrap(), superblock);
}

#[test]
fn space_for_configurations_is_zero_and_before_all_tables() {
    let has_space = |area: &SuperblockArea, old_len, len| area.has_config_space(old_len, len);
    let empty = area(|_| (), &[]);
    assert!(has_space(&empty, 0, SECTOR - 128) && !has_space(&empty, 0, SECTOR - 127));
    let full = area(|_| (), &[0, 0, 0, 1]);
    assert!(has_space(&full, 0, 3) && !has_space(&full, 0, 4) && has_space(&full, 4, 20));
    let table = |count| {
        area(
            |superblock| {
                superblock.incompat = Incompat::DEVICE_TABLE;
                superblock.extra_devices = count;
                superblock.device_table = BytePos::new(1024 + 256);
            },
            &[],
        )
    };
    assert!(
        has_space(&table(1), 0, 128)
            && !has_space(&table(1), 0, 129)
            && has_space(&table(0), 0, 129)
    );
}

#[test]
fn all_bytes_that_the_checksum_covers_are_checked() {
    let area = area(|_| (), &[5]);
    let mut image = vec![0; SECTOR_POS as usize];
    image.extend(area.covered(&area.sector()));
    assert_eq!(image.len(), 4096);
    // Bytes that a file does not have count as zeroes; others do not matter.
    for len in [1536, 1537, 4096, 5000] {
        let mut other = image.clone();
        other.resize(len, 1);
        let read = SuperblockArea::read(&other).unwrap();
        assert_eq!((read.sector, read.behind), (area.sector, area.behind.clone()), "{len}");
    }
    for at in [1024 + 0x30, 1535, 1536, 4095] {
        let mut other = image.clone();
        other[at] ^= 1;
        assert!(SuperblockArea::read(&other).is_err(), "{at}");
    }
    // The sector is checked with the bytes that follow it in the image.
    let sector = area.resize(&area.sector(), 3 * 4096).unwrap();
    image[1024..1536].fill(0xff);
    assert!(SuperblockArea::read(&image).is_err());
    let with = SuperblockArea::with(&image, &sector).unwrap();
    assert_eq!((with.size(), with.sector()), (3 * 4096, sector));
    image[4095] = 1;
    assert!(SuperblockArea::with(&image, &sector).is_err());
}

#[test]
fn the_checksum_covers_the_rest_of_the_block() {
    let end = |bits| covered_end(&Superblock::new(BlockSize::from_bits(bits).unwrap()));
    assert_eq!([9, 10, 11, 12].map(end), [1536, 2048, 2048, 4096]);
}
