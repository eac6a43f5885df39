//! Answers of the cluster: the interface `cluster`.

use std::sync::Arc;

use bindery_core::{
    Claim, Class, Lookup, Migration, OperationState, Page, Plugin, PluginMatch, Pod, Query, Slot, Source,
    Volume,
};

use super::super::bindings::bindery::policy::cluster;
use super::{Carry, IllTyped};

cases! {
    cluster::Source { Overlay, Cache, Live }
    cluster::OperationState { Idle, Running, BackingOff }
    cluster::Slot { Free, InFlight; Withheld => InFlight }
}

records! {
    cluster::Pod { name, scheduled, terminated }
    cluster::Plugin { name, provisions, deletes, recycles, mount_options }
    cluster::Query { class, mode, attributes_class, access_set, at_least, labels }
    cluster::Page { handles, whole, nanos, slots, more }
}

variants! {
    Lookup<Arc<Claim>> = cluster::ClaimLookup { plain: Absent; value: Found, Unreadable, Failed; }
    Lookup<Arc<Volume>> = cluster::VolumeLookup { plain: Absent; value: Found, Unreadable, Failed; }
    Lookup<Arc<Class>> = cluster::ClassLookup { plain: Absent; value: Found, Unreadable, Failed; }
    PluginMatch = cluster::PluginMatch { plain: None; value: One, Several; }
    Migration = cluster::Migration { plain: Off, Untranslatable; value: On; }
}

since_0_2! {
    {
        variants! {
            bindery_core::MatchVerdict = cluster::Verdict {
                plain: Allowed;
                fields: Rejected = cluster::Rejection { policy, reason };
            }
            bindery_core::Fate = cluster::Fate {
                plain: ByPolicy, Keep, Delete, Recycle, OfferAgain;
                value: KeepFor;
            }
        }
        use bindery_core::ReclaimVerdict;
        records! {
            cluster::ReclaimVerdict { fate, policy, reason }
        }
    } else {}
}

impl Carry for Lookup<()> {
    type Wit = cluster::NodeLookup;
    fn lower(&self) -> cluster::NodeLookup {
        match self {
            Self::Found(()) => cluster::NodeLookup::Found,
            Self::Absent => cluster::NodeLookup::Absent,
            Self::Unreadable(what) => cluster::NodeLookup::Unreadable(what.lower()),
            Self::Failed(error) => cluster::NodeLookup::Failed(error.lower()),
        }
    }
    fn lift(wit: cluster::NodeLookup) -> Result<Self, IllTyped> {
        Ok(match wit {
            cluster::NodeLookup::Found => Self::Found(()),
            cluster::NodeLookup::Absent => Self::Absent,
            cluster::NodeLookup::Unreadable(what) => Self::Unreadable(what.into()),
            cluster::NodeLookup::Failed(error) => Self::Failed(error.into()),
        })
    }
}
