use std::os::unix::fs::FileExt;
use std::sync::Arc;

use ferofs_read::FileSource;
use ferofs_verity::Params;

use super::*;
use crate::fetch::reuse::base::Base;

const BLOCK: usize = 4096;

/// The right bytes.
struct Right(Vec<u8>);

impl Check for Right {
    fn align(&self) -> u64 {
        UNIT
    }

    fn needs(&self, _: &Range<u64>) -> Vec<Range<u64>> {
        Vec::new()
    }

    fn digests(&self, range: &Range<u64>) -> Vec<Digest> {
        // The last block has no digest.
        let len = self.0.len() - BLOCK;
        Params::default().digests(&self.0[range.start as usize..len.min(range.end as usize)])
    }

    fn check(&self, start: u64, bytes: &[u8]) -> Checked {
        let is_right = self.0[start as usize..].starts_with(bytes);
        if is_right { Checked::Right } else { Checked::Wrong }
    }
}

/// Each byte is copied or requested, also when other threads use up the budget, and when blocks are
/// wrong beside requests.
#[test]
fn nothing_is_left_out() {
    let mut state = 1_u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for round in 0..60 {
        let mut blocks: Vec<Vec<u8>> =
            (0..120_u64).map(|n| n.to_le_bytes().repeat(BLOCK / 8)).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&blocks.concat(), 0).unwrap();
        let base = Base::file(Arc::new(FileSource::new(file.try_clone().unwrap(), 0).unwrap()));
        let known = KnownBlocks::start(Params::default(), move || vec![base]);
        while !known.is_complete() {
            std::thread::yield_now();
        }
        // Changed blocks, and blocks that are changed in the file only.
        for _ in 0..random() % 60 {
            blocks[(random() % 120) as usize][7] ^= 1;
        }
        for _ in 0..random() % 20 {
            file.write_all_at(&[9], random() % 120 * BLOCK as u64).unwrap();
        }
        blocks.rotate_left((random() % 3) as usize);
        let right = Right(blocks.concat());
        let range = (random() % 50 * 4096)..(60 + random() % 61) * 4096;
        let budget = GapBudget::default();
        // Bytes that were needed before: a large budget.
        budget.record(&(0..1 << 20), &[0..1 << 20]);
        let mut got = vec![0; right.0.len()];
        let copied =
            copy_blocks(&known, &right, range.clone(), &budget, 20 * 4096, |start, bytes| {
                got[start as usize..][..bytes.len()].copy_from_slice(bytes);
                budget.record(&(0..1 << 20), &[]);
                Ok(())
            });
        let copied = copied.unwrap();
        assert!(copied.requests.windows(2).all(|pair| pair[0].end < pair[1].start), "{copied:?}");
        for request in &copied.requests {
            let request = request.start as usize..request.end as usize;
            got[request.clone()].copy_from_slice(&right.0[request]);
        }
        let range = range.start as usize..range.end as usize;
        assert!(got[range.clone()] == right.0[range], "{round}: {copied:?}");
    }
}
