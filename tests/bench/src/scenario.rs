//! The volumes and claims of a benchmark.

use std::sync::Arc;

use bindery_core::{
    Claim, ClaimKey, Quantity, Request, Requirement, Selector, SelectorOperator, Subject, Text, Uid, Volume,
};
use bindery_store::{Delivery, Kind, Store};

use crate::scan::Scan;

/// The classes of the volumes, in turn. Claims use the first.
const CLASSES: [&str; 5] = ["", "fast", "slow", "cold", "spare"];
/// Labels of each volume.
const LABELS: u32 = 20;
/// Labels in the selector.
const SELECTED: u32 = 8;
/// Claims, which are decided in turn.
const CLAIMS: u32 = 61;
const GIB: u64 = 1 << 30;

/// The shape of the claims.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Shape {
    /// Each claim requests another size, and a volume of the next size exists.
    BestFit,
    /// The claim is larger than every volume; the decision explains this in numbers.
    NothingFits,
    /// In the class, which has a fifth of the volumes, only the largest volume has all labels of the
    /// selector.
    Selector,
}

impl Shape {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BestFit => "best fit",
            Self::NothingFits => "nothing fits",
            Self::Selector => "selector, 8 labels",
        }
    }
}

/// A store full of volumes, the same volumes for the scan, and the requests.
pub(crate) struct Scenario {
    pub(crate) shape: Shape,
    pub(crate) store: Store,
    pub(crate) scan: Scan,
    pub(crate) requests: Vec<Request>,
}

impl Scenario {
    /// A scenario with this many volumes, at least one of each class.
    pub(crate) fn new(shape: Shape, volumes: u32) -> Self {
        let per_class = volumes / 5;
        // Not sorted by size: steps of a prime visit every number once.
        let shuffled = (0..volumes).map(|i| u32::try_from(u64::from(i) * 7_919 % u64::from(volumes)));
        let all: Vec<Arc<Volume>> =
            shuffled.map(|i| Arc::new(volume(i.expect("it is less than the volumes"), per_class))).collect();
        let store = Store::new();
        store.deliver(Delivery::listed(Kind::Volume, all.iter().cloned(), "1"));
        let requests = (0..CLAIMS).map(|i| request(claim(i, shape, per_class))).collect();
        Self { shape, store, scan: Scan::new(all), requests }
    }
}

/// Volume `number`; of `per_class` in its class the sizes go from 1 GiB up.
pub(crate) fn volume(number: u32, per_class: u32) -> Volume {
    let (class, size) = (CLASSES[number as usize % CLASSES.len()], number / 5 + 1);
    // Each volume except the largest has another value for one label of the selector.
    let differs = (size < per_class).then_some(size % SELECTED);
    let labels = (0..LABELS).map(|label| {
        let value = if differs == Some(label) { "other" } else { "this" };
        (format!("example.com/label-{label}").into(), Text::from(value))
    });
    Volume {
        uid: Uid(format!("00000000-0000-0000-0000-{number:012}").into()),
        labels: labels.collect(),
        finalizers: vec!["kubernetes.io/pv-protection".into()],
        capacity: Some(Quantity::bytes(u64::from(size) * GIB)),
        class: class.into(),
        source: "csi".into(),
        ..bindery_kit::volume(&format!("volume-{number}"))
    }
}

fn claim(number: u32, shape: Shape, per_class: u32) -> Claim {
    let size = match shape {
        Shape::BestFit => u64::from(number * (per_class - 1) / CLAIMS) * GIB + 1,
        Shape::NothingFits => u64::from(per_class) * GIB + 1,
        Shape::Selector => 1,
    };
    Claim {
        uid: Uid(format!("11111111-1111-1111-1111-{number:012}").into()),
        version: "2".into(),
        request: Quantity::bytes(size),
        class: Some("".into()),
        selector: (shape == Shape::Selector).then(selector),
        ..bindery_kit::claim(ClaimKey::new("default", format!("claim-{number}")))
    }
}

fn selector() -> Selector {
    let requirement = |label| Requirement {
        key: format!("example.com/label-{label}").into(),
        operator: SelectorOperator::In,
        values: vec!["this".into()],
    };
    Selector::Requirements((0..SELECTED).map(requirement).collect())
}

/// The request to sync a claim.
pub(crate) fn request(claim: Claim) -> Request {
    Request { now: 1_800_000_000, subject: Subject::SyncClaim(Arc::new(claim)) }
}
