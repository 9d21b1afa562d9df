//! What workers do: read files, or segments of a large one, and decide what is stored of them.
//!
//! A worker's result depends on the source's bytes and the options alone, never on other workers.

use ferofs_format::units::SLOT_SIZE;
use ferofs_format::{Algorithm, BlockSize};

use crate::data::base_image::Base;
use crate::data::encode::dedupe::{Known, Match};
use crate::data::encode::deflate_pages::PageRule;
use crate::data::encode::{Encoded, Encoder, End, Next, Seen, Sink};
use crate::data::extents::index::Form;
use crate::data::identical::small::{Claim, Print, Twins};
use crate::data::order::Order;
use crate::options::compression::{Compression, Fragments, Index, Recipe};
use crate::progress::timings::{Activity, Timings};
use crate::sources::content::Contents;
use crate::sources::reader::Reader;
use crate::tree::inode_sizes::InodeSizes;
use crate::tree::origin::{Origin, SourcePosition};
use crate::tree::{NodeId, Tree};
use crate::{Error, Result};

/// Large files are cut at multiples of this. It shows in the image: do not let it depend on the machine.
pub const SEGMENT: u64 = 4 << 20;

/// From so many blocks on, a file none of whose extents is encoded is stored flat, which reads better: below, extents placed
/// to the byte save the rest of a block.
const FLAT_MIN_BLOCKS: usize = 16;

/// What to read, and how to encode it.
#[derive(Clone, Debug)]
pub enum Work {
    /// Whole files.
    Files(Vec<NodeId>),
    /// A part of a file: at most [`SEGMENT`] bytes.
    Part {
        /// The file.
        node: NodeId,
        /// Where the part starts.
        offset: u64,
        /// Its bytes.
        len: usize,
        /// Store it, and pad it to whole blocks.
        store: bool,
        /// The file ends with it.
        last: bool,
    },
    /// A part of the packed inode.
    Packed(Vec<u8>),
}

/// What became of one file, or of a part.
#[derive(Debug)]
pub struct Piece {
    pub node: NodeId,
    /// Bytes of the piece in [`Done::extents`].
    pub extents: usize,
    /// Bytes of the piece in [`Done::tails`].
    pub tails: usize,
    /// What tells its content from others, if another file can have it.
    pub print: Option<Print>,
    /// What tells its extents from others, if they may be shared although its end is its own.
    pub extents_print: Option<Print>,
    pub kind: PieceKind,
}

#[derive(Debug)]
pub enum PieceKind {
    /// The content as it is, in whole blocks; its last bytes, fewer than a block, are its tails.
    Stored,
    /// A part's content as it is, which the thread that appends copies from here without reading it.
    Copied(SourcePosition),
    /// In extents, by this method.
    Encoded(Encoded, usize),
    /// A file before has the same content.
    Twin,
    /// It cannot be read and is to be left out.
    Unreadable(Error),
}

/// The result of a [`Work`]. Its buffers are used again.
#[derive(Debug, Default)]
pub struct Done {
    pub extents: Vec<u8>,
    pub tails: Vec<u8>,
    pub pieces: Vec<Piece>,
    pub bytes_read: u64,
}

impl Done {
    pub fn clear(&mut self) {
        self.clear_bytes();
        self.pieces.clear();
        self.bytes_read = 0;
    }

    fn clear_bytes(&mut self) {
        self.extents.clear();
        self.tails.clear();
    }
}

/// What all workers share.
#[derive(Clone, Copy)]
pub struct Shop<'a> {
    pub tree: &'a Tree,
    pub order: &'a Order,
    pub inode_sizes: &'a InodeSizes,
    pub twins: &'a Twins,
    /// What extents can be shared, when deduplicating.
    pub known: Option<&'a Known>,
    /// An image that is there already.
    pub base: Option<&'a dyn Base>,
    pub contents: &'a Contents,
    pub timings: &'a Timings,
    pub compression: Option<&'a Compression>,
    pub block: BlockSize,
    pub skip_unreadable: bool,
}

impl<'a> Shop<'a> {
    /// How `node` is encoded, if it is.
    fn recipe(&self, node: NodeId) -> Option<(&'a Compression, Recipe)> {
        let compression = self.compression.filter(|_| !self.order.is_stored(node))?;
        Some((compression, compression.recipe(|| self.tree.path_bytes(node), self.block)?))
    }

    /// How indexes are made; without compression there are none.
    pub fn form(&self) -> Form {
        let (block, compression) = (self.block, self.compression);
        let index = compression.map_or(Index::Compact, |compression| compression.index);
        Form { index, block, big: compression.is_some_and(|compression| compression.is_big(block)) }
    }

    /// What limits the places of extents encoded by `method`, if anything does.
    pub fn page_rule(&self, method: usize) -> Option<PageRule> {
        let compression = self.compression.filter(|compression| compression.index == Index::Extents)?;
        let algorithm = compression.methods.get(method)?.algorithm();
        (algorithm == Algorithm::Deflate).then(|| PageRule::new(self.block))
    }

    /// Bytes of `node` and its xattrs, for decisions on its content: files that may share it decide alike.
    fn head_len(&self, node: NodeId) -> usize {
        let len = self.inode_sizes.len(node);
        if self.twins.is_candidate(node) { len.next_multiple_of(HEAD_CLASS) } else { len }
    }

    /// How many of the last bytes of `size` can follow `node` within one block.
    pub fn inline_tail(&self, node: NodeId, size: u64) -> usize {
        let tail = (size & self.block.mask()) as usize;
        let fits = self.head_len(node) + tail <= self.block.bytes();
        if self.inode_sizes.may_inline(node) && fits { tail } else { 0 }
    }

    /// Bytes that can follow the index of `node`, a file of `size` bytes, within one block.
    fn inline_room(&self, node: NodeId, size: u64) -> usize {
        if !self.inode_sizes.may_inline(node) {
            return 0;
        }
        let index = usize::try_from(self.form().size_estimate(size)).unwrap_or(usize::MAX);
        self.block.bytes().saturating_sub(self.head_len(node)).saturating_sub(index)
    }

    /// What decides, with its content, what is stored of `node`: see [`Twins::claim`].
    pub fn print_form(&self, node: NodeId) -> Vec<u8> {
        let recipe = self.recipe(node).map(|(_, recipe)| (recipe.method, recipe.pcluster));
        let place = (self.head_len(node), self.inode_sizes.len(node) % SLOT_SIZE as usize);
        format!("{recipe:?} {place:?} {}", self.inode_sizes.may_inline(node)).into_bytes()
    }
}

/// Files whose inodes and xattrs have the same length up to this can share what follows.
const HEAD_CLASS: usize = 128;

/// A worker's hands.
pub struct Worker<'a> {
    shop: Shop<'a>,
    encoder: Option<Encoder<'a>>,
    input: Vec<u8>,
    reader: Reader<'a>,
    /// The work's number.
    number: usize,
}

impl<'a> Worker<'a> {
    pub fn new(shop: Shop<'a>) -> Self {
        let encoder = shop.compression.map(|compression| Encoder::new(compression, shop.block, shop.timings));
        Self { shop, encoder, input: Vec::new(), reader: Reader::new(shop.contents, shop.tree), number: 0 }
    }

    /// Does `work`, of files the `number`th, into `done`, which is empty.
    pub fn run(&mut self, number: usize, work: &Work, done: &mut Done) -> Result<()> {
        self.number = number;
        match work {
            Work::Files(files) => files.iter().try_for_each(|node| self.file(*node, done)),
            Work::Part { node, offset, len, store, last } => {
                if let Some(place) = self.stored_in(*node) {
                    done.bytes_read += *len as u64;
                    let kind = PieceKind::Copied(SourcePosition { at: place.at + offset, ..place });
                    let (node, extents, tails) = (*node, 0, 0);
                    done.pieces.push(Piece { node, extents, tails, print: None, extents_print: None, kind });
                    return Ok(());
                }
                done.bytes_read += *len as u64;
                match self.read(*node, *offset, *len) {
                    Ok(()) => self.part(*node, *offset, *store, *last, done),
                    Err(error) => self.leave_out(*node, error, done),
                }
            }
            Work::Packed(bytes) => self.packed(bytes, done),
        }
    }

    /// Where the content of `node` is, if it is stored as it is in one place of an archive or the spool.
    fn stored_in(&self, node: NodeId) -> Option<SourcePosition> {
        match self.shop.tree.node(node).origin {
            Origin::At(place) if self.shop.recipe(node).is_none() => Some(place),
            _ => None,
        }
    }

    fn file(&mut self, node: NodeId, done: &mut Done) -> Result<()> {
        let shop = self.shop;
        let size = shop.tree.node(node).size;
        done.bytes_read += size;
        if let Err(error) = self.read(node, 0, size as usize) {
            return self.leave_out(node, error, done);
        }
        let claim = || shop.twins.claim(node, shop.order.rank(node), &self.input, || shop.print_form(node));
        let claim = match shop.twins.is_candidate(node) {
            true => shop.timings.time(Activity::Hash, self.input.len(), claim),
            false => Claim::Only,
        };
        let print = match claim {
            Claim::Only => None,
            Claim::First(print) => Some(print),
            Claim::Twin(print) => {
                let kind = PieceKind::Twin;
                done.pieces.push(Piece {
                    node,
                    extents: 0,
                    tails: 0,
                    print: Some(print),
                    extents_print: None,
                    kind,
                });
                return Ok(());
            }
        };
        let (extents, tails) = (done.extents.len(), done.tails.len());
        let encoded = match shop.recipe(node) {
            Some((compression, recipe)) => self.encode_file(node, compression, recipe, done)?,
            None => None,
        };
        let kind = match encoded {
            Some((encoded, method)) => PieceKind::Encoded(encoded, method),
            None => {
                done.extents.truncate(extents);
                done.tails.truncate(tails);
                let whole = size as usize - shop.inline_tail(node, size);
                done.extents.extend_from_slice(&self.input[..whole]);
                done.extents.resize(extents + whole.next_multiple_of(shop.block.bytes()), 0);
                done.tails.extend_from_slice(&self.input[whole..]);
                PieceKind::Stored
            }
        };
        let extents_print = match &kind {
            PieceKind::Encoded(Encoded { log, end, .. }, method) if *end != End::None => {
                shop.twins.print_extents(log, *method, &done.extents[extents..])
            }
            _ => None,
        };
        let (extents, tails) = (done.extents.len() - extents, done.tails.len() - tails);
        done.pieces.push(Piece { node, extents, tails, print, extents_print, kind });
        Ok(())
    }

    /// Leaves out a file that cannot be read, if that is allowed.
    fn leave_out(&self, node: NodeId, error: Error, done: &mut Done) -> Result<()> {
        if !self.shop.skip_unreadable || !error.is_unreadable() {
            return Err(error);
        }
        let kind = PieceKind::Unreadable(error);
        done.pieces.push(Piece { node, extents: 0, tails: 0, print: None, extents_print: None, kind });
        Ok(())
    }

    /// What may be referred to, with extents that the base has `given`.
    fn seen<'g>(&self, given: &'g [Match]) -> Option<Seen<'g>>
    where
        'a: 'g,
    {
        let none = self.shop.known.is_none() && given.is_empty();
        (!none).then_some(Seen { known: self.shop.known, work: self.number, given })
    }

    /// Extents that the base has of the input, which is the content of `node` from `offset` on.
    fn given(&self, node: NodeId, offset: u64, recipe: Recipe) -> Result<Vec<Match>> {
        let Some(base) = self.shop.base else { return Ok(Vec::new()) };
        base.matches(node, offset, &self.input, recipe.method)
    }

    /// Encodes a whole file, if that takes less room than storing it.
    fn encode_file(
        &mut self,
        node: NodeId,
        compression: &Compression,
        recipe: Recipe,
        done: &mut Done,
    ) -> Result<Option<(Encoded, usize)>> {
        let (shop, size) = (self.shop, self.input.len());
        let (head, block) = (shop.head_len(node), shop.block.bytes());
        let slots = |len: usize| (head + len).next_multiple_of(SLOT_SIZE as usize);
        let tail = shop.inline_tail(node, size as u64);
        // A block at most either way, unless something can stand elsewhere.
        let shares_blocks = compression.inline_tails
            || compression.fragments != Fragments::None
            || compression.index == Index::Extents;
        if size <= block && (!shares_blocks || tail == size && slots(size) <= slots(16)) {
            return Ok(None);
        }
        let index = shop.form().size_estimate(size as u64);
        let stored = ((size - tail).next_multiple_of(block) + tail) as u64;
        let whole_fragment = compression.fragments == Fragments::All
            || compression.fragments == Fragments::Tails && size < recipe.pcluster;
        if whole_fragment {
            done.tails.extend_from_slice(&self.input);
            let log = crate::data::extents::list::ExtentLog::new(block as u64);
            return Ok(Some((
                Encoded { log, stamps: Vec::new(), end: End::Fragment { bytes: size } },
                recipe.method,
            )));
        }
        let given = self.given(node, 0, recipe)?;
        let seen = self.seen(&given);
        let Some(encoder) = &mut self.encoder else { return Ok(None) };
        let next = Next::Nothing { inline_room: shop.inline_room(node, size as u64) };
        let sink = Sink { extents: &mut done.extents, tails: &mut done.tails };
        // A file that is stored starts with a block, and wastes the rest of the one before.
        let waste = if compression.index == Index::Extents { block as u64 / 2 } else { 0 };
        let budget = (stored + waste).saturating_sub(index);
        let Some(encoded) = encoder.encode(&self.input, recipe, next, seen, budget, sink)? else {
            return Ok(None);
        };
        let inline = match encoded.end {
            End::Inline { bytes, .. } => bytes as u64,
            End::None | End::Fragment { .. } => 0,
        };
        let plain = encoded.log.is_flat() && encoded.end == End::None && size >= FLAT_MIN_BLOCKS * block;
        let pays = encoded.log.size() + inline <= budget && !plain;
        Ok(pays.then_some((encoded, recipe.method)))
    }

    fn part(&mut self, node: NodeId, offset: u64, store: bool, last: bool, done: &mut Done) -> Result<()> {
        let shop = self.shop;
        let mut kind = PieceKind::Stored;
        let recipe = if store { None } else { shop.recipe(node).map(|(_, recipe)| recipe) };
        let given = match recipe {
            Some(recipe) => self.given(node, offset, recipe)?,
            None => Vec::new(),
        };
        let seen = self.seen(&given);
        if let (Some(recipe), Some(encoder)) = (recipe, &mut self.encoder) {
            let size = shop.tree.node(node).size;
            let end = Next::Nothing { inline_room: shop.inline_room(node, size) };
            let mut next = if last { end } else { Next::More };
            loop {
                let sink = Sink { extents: &mut done.extents, tails: &mut done.tails };
                let Some(encoded) = encoder.encode(&self.input, recipe, next, seen, u64::MAX, sink)? else {
                    break;
                };
                // Files that are stored as a whole are flat, and have no ends elsewhere.
                if encoded.log.is_flat() && encoded.end != End::None {
                    done.clear_bytes();
                    next = Next::More;
                    continue;
                }
                kind = PieceKind::Encoded(encoded, recipe.method);
                break;
            }
        }
        if matches!(kind, PieceKind::Stored) {
            done.extents.extend_from_slice(&self.input);
            done.extents.resize(self.input.len().next_multiple_of(shop.block.bytes()), 0);
        }
        let (extents, tails) = (done.extents.len(), done.tails.len());
        done.pieces.push(Piece { node, extents, tails, print: None, extents_print: None, kind });
        Ok(())
    }

    fn packed(&mut self, bytes: &[u8], done: &mut Done) -> Result<()> {
        let (Some(compression), Some(encoder)) = (self.shop.compression, &mut self.encoder) else {
            return Ok(());
        };
        let recipe = compression.packed_recipe(self.shop.block);
        let sink = Sink { extents: &mut done.extents, tails: &mut done.tails };
        if let Some(encoded) = encoder.encode(bytes, recipe, Next::More, None, u64::MAX, sink)? {
            let kind = PieceKind::Encoded(encoded, recipe.method);
            let extents = done.extents.len();
            done.pieces.push(Piece {
                node: NodeId::ROOT,
                extents,
                tails: 0,
                print: None,
                extents_print: None,
                kind,
            });
        }
        Ok(())
    }

    /// Reads `len` bytes from `offset` into the input.
    fn read(&mut self, node: NodeId, offset: u64, len: usize) -> Result<()> {
        self.input.resize(len, 0);
        self.shop.timings.time(Activity::Read, len, || self.reader.read(node, offset, &mut self.input))
    }
}
