//! The memory that applying a delta takes. `create` states it in the header, and `apply` refuses a
//! piece that needs more.

use ferofs_codec::{MAX_ENCODED, Params, encoder_memory};
use ferofs_format::units::{to_u64, to_usize};

use super::delta_file::{CHUNK, DeltaHeader, DeltaPiece};
use super::plan::{Item, Plan};
use super::prediction::Relocations;

/// The program `ferofs-device` with its stack, the reader of the old image, and a list of copies.
const PROGRAM: u64 = 14 << 20;
/// Bytes for each byte of a decoded plan: an item takes two, and 32 bytes when it is parsed.
const OF_PLAN: u64 = 32;
/// A decoder may need twice as much again as the extent that it decodes.
const COPIES: u64 = 3;

/// The memory for the pieces so far. Buffers are used again, so the largest of each counts.
#[derive(Clone, Debug)]
pub struct PieceMemory {
    /// Bytes of the stored parts of a piece, of its delta, its payload and what it makes.
    buffers: [usize; 4],
    plan: u64,
    dictionary: u64,
    /// Bytes for predicting metadata.
    prediction: u64,
    /// The longest content that each method encodes.
    content: Vec<u32>,
}

impl PieceMemory {
    /// For pieces with so many `methods`, whose metadata is predicted from `relocations` of an
    /// image with so many `old_inodes`.
    #[must_use]
    pub fn new(methods: usize, relocations: Option<&Relocations>, old_inodes: u64) -> Self {
        Self {
            buffers: [0; 4],
            plan: 0,
            dictionary: 0,
            prediction: relocations.map_or(0, |list| list.memory(old_inodes)),
            content: vec![0; methods],
        }
    }

    /// Adds a piece.
    pub fn add(&mut self, piece: &DeltaPiece, plan: &Plan) {
        let stored = piece.plan.len().saturating_add(piece.payload.len());
        self.add_buffers([stored, piece.delta_len, piece.payload_len, piece.made_len]);
        self.add_plan(to_u64(plan.columns().len()), plan);
    }

    /// Adds the buffers of a piece.
    pub(crate) fn add_buffers(&mut self, buffers: [usize; 4]) {
        self.buffers.iter_mut().zip(buffers).for_each(|(most, len)| *most = len.max(*most));
    }

    /// Adds a plan that has `decoded` bytes.
    pub(crate) fn add_plan(&mut self, decoded: u64, plan: &Plan) {
        self.plan = self.plan.max(decoded);
        let dictionary = plan.references.iter().map(|reference| u64::from(reference.len()));
        self.dictionary = self.dictionary.max(dictionary.fold(0, u64::saturating_add));
        for item in &plan.items {
            if let Item::Unit(unit) = item
                && let Some(content) = self.content.get_mut(usize::from(unit.method))
            {
                *content = unit.content_len.max(*content);
            }
        }
    }

    /// Adds all pieces of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.add_buffers(other.buffers);
        self.plan = self.plan.max(other.plan);
        self.dictionary = self.dictionary.max(other.dictionary);
        self.content
            .iter_mut()
            .zip(&other.content)
            .for_each(|(most, content)| *most = (*most).max(*content));
    }

    /// Bytes of memory for a process that applies a delta with this header and a hash tree of
    /// `tree` bytes. The memory that the header states does not count.
    #[must_use]
    pub fn total(&self, header: &DeltaHeader, methods: &[Params], tree: u64) -> u64 {
        let [stored, delta, payload, made] = self.buffers.map(to_u64);
        let tables = methods.iter().zip(&self.content).filter(|(_, content)| **content > 0);
        let tables = tables.map(|(params, content)| encoder_memory(params, (*content).into()));
        let parts = [
            (1, PROGRAM),
            // Two chunks of the new image, and then the output of a compressor after what is made.
            (2, to_u64(CHUNK)),
            (1, to_u64(MAX_ENCODED)),
            (2, to_u64(header.chunks.as_flattened().len())),
            (COPIES, header.longest_extent.into()),
            (1, tree),
            (1, self.prediction),
            (OF_PLAN, self.plan),
            // They grow as they are read.
            (2, stored),
            (1, delta),
            (1, payload),
            (1, made),
            (1, self.dictionary),
        ];
        let parts = parts.iter().map(|(times, bytes): &(u64, u64)| bytes.saturating_mul(*times));
        parts.chain(tables).fold(0, u64::saturating_add)
    }

    /// Bytes that a decoded plan may have, so that the memory is what the header states.
    pub(crate) fn plan_max(&self, header: &DeltaHeader, methods: &[Params], tree: u64) -> usize {
        let others = Self { plan: 0, ..self.clone() }.total(header, methods, tree);
        to_usize(header.memory.saturating_sub(others) / OF_PLAN)
    }
}
