//! Random sequences of patches and rollbacks, compared with a model: which tree the image shows,
//! and why a patch is refused.

use super::*;

/// A patch with the names of the patches that its base has, in order.
struct Known {
    base: Vec<&'static str>,
    name: &'static str,
    patch: Patch,
}

impl Known {
    fn result(&self) -> Vec<&'static str> {
        [&self.base[..], &[self.name]].concat()
    }
}

/// The patches that the tree of each state has, the built image first.
type Model = Vec<Vec<&'static str>>;

/// The patches that the tree in `image` has, as its file `patches` says.
fn tree_of(image: impl Source + 'static) -> String {
    let image = Image::open(image).unwrap();
    let file =
        Walk::new(&image).map(Result::unwrap).find(|walked| walked.path.ends_with("patches"));
    let inode = file.unwrap().inode.unwrap();
    let mut content = vec![0; inode.size() as usize];
    image.read_at(&inode, FileOffset::new(0), &mut content).unwrap();
    String::from_utf8(content).unwrap()
}

/// Makes an image and its patches: those of one base have the same sizes and times, and so the same
/// superblock.
fn patches(fixture: &Fixture) -> (Vec<u8>, Vec<Known>) {
    let file = fixture.path("new/patches");
    std::fs::write(&file, "").unwrap();
    let mut options = build::Options::new(fixture.path("new"));
    options.attributes.all_time = TIME;
    build::build(&options, fixture.path("image")).unwrap();
    let built = fixture.image();
    let mut known: Vec<Known> = Vec::new();
    let steps: [(&[&str], &str); 6] =
        [(&[], "P"), (&[], "Q"), (&["P"], "R"), (&["P"], "S"), (&["Q"], "T"), (&["P", "R"], "U")];
    for (base, name) in steps {
        let medium = Recorder::new(built.clone());
        for one in base {
            let patch = &known.iter().find(|known| known.name == *one).unwrap().patch;
            apply_to(&medium, patch).unwrap();
        }
        std::fs::write(fixture.path("image"), &*medium.bytes.lock().unwrap()).unwrap();
        std::fs::write(&file, [base, &[name]].concat().concat()).unwrap();
        let mut options = CreateOptions::new(fixture.path("new"));
        options.build.attributes.all_time = TIME;
        options.build.image.build_time = Some(1234);
        create(fixture.path("image"), &options, fixture.path(name)).unwrap();
        let patch = Patch::open(fixture.path(name)).unwrap();
        known.push(Known { base: base.to_vec(), name, patch });
    }
    (built, known)
}

/// Applies a patch and compares with `model`, which gets the new state.
fn try_patch(medium: &Recorder, known: &Known, model: &mut Model) {
    let before = medium.bytes.lock().unwrap().clone();
    let over = overlay(Arc::new(before.clone()), &known.patch, &Cancel::default());
    let applied = apply_to(medium, &known.patch);
    let (current, result) = (model.last().unwrap(), known.result());
    // A base must be bit-identical: no rollback has appended anything to it.
    let is_base = *current == known.base && model.len() == known.base.len() + 1;
    let was_rolled_back = *current == known.base && model.contains(&result);
    let already = current.starts_with(&result);
    match &applied {
        Ok(()) => {
            assert!(is_base || was_rolled_back, "{} on {model:?}", known.name);
            assert_eq!(tree_of(over.unwrap()), result.concat());
            model.push(result);
        }
        Err(crate::Error::Patch(fault)) => {
            assert!(!is_base && !was_rolled_back, "{} on {model:?}: {fault}", known.name);
            assert_eq!(
                *fault == PatchFault::AlreadyApplied,
                already,
                "{} on {model:?}: {fault}",
                known.name
            );
            assert!(matches!(over.map(drop), Err(crate::Error::Patch(same)) if same == *fault));
            assert_eq!(before, *medium.bytes.lock().unwrap());
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_image_shows_the_tree_of_the_model() {
    let fixture = Fixture::new(None);
    let (built, known) = patches(&fixture);
    let mut random = 1_u64;
    let mut below = |limit: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) as usize % limit
    };
    let (mut rolled_forward, mut again) = (0, 0);
    for _ in 0..60 {
        let medium = Recorder::new(built.clone());
        let mut model: Model = vec![Vec::new()];
        for _ in 0..14 {
            let states = model.len();
            match below(8) {
                0 | 1 if states > 1 => {
                    let to = below(states - 1);
                    let time = below(2000) as i64;
                    assert_eq!(
                        rollback(&medium, Some(to as u64), TrailingData::Keep, time).unwrap(),
                        to as u64
                    );
                    model.push(model[to].clone());
                }
                2 => assert_eq!(repair(&medium).unwrap(), Repaired::Nothing),
                _ => {
                    let one = &known[below(known.len())];
                    try_patch(&medium, one, &mut model);
                    let came = model.len() > states;
                    rolled_forward += usize::from(came && model[..states].contains(&one.result()));
                    again += usize::from(!came);
                }
            }
            let bytes = medium.bytes.lock().unwrap().clone();
            assert_eq!(tree_of(bytes.clone()), model.last().unwrap().concat(), "{model:?}");
            assert_eq!(log(&bytes).unwrap().len(), model.len());
        }
    }
    assert!(rolled_forward > 20 && again > 20, "{rolled_forward} {again}");
}
