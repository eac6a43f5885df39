//! The reviews that are sent to the webhook.
//!
//! Their objects are the API server's answers to dry runs, so they have the defaults, UIDs and managedFields
//! that the API server sends to webhooks.

use std::fmt::Debug;

use anyhow::Result;
use bindery_cluster::{BY_HAND, FREE_SIZE, Stock, free_name, pair_name};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::load::{claim_object, volume_object};

/// Different reviews of each shape.
const EACH: usize = 200;
/// Concurrent dry runs.
const IN_FLIGHT: usize = 16;
/// The class of claims whose volumes are provisioned. [`create_classes`] makes it.
pub(crate) const PROVISIONED: &str = "provisioned";
/// The class of the bound pairs, whose claims may grow.
const PAIRS_CLASS: &str = "class-0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A new claim whose volume will be provisioned.
    Provisioned,
    /// A new claim whose class has no object: a free volume is searched.
    ByHand,
    /// A new claim that names a free volume that fits.
    Named,
    /// A bound claim that grows.
    Grown,
    /// A new volume that is reserved for a claim.
    Volume,
    /// A new claim that names a free volume that is too small: denied after a live read of the volume.
    Denied,
}

/// A review and its shape, which determines the answer.
#[derive(Clone, Debug)]
pub(crate) struct Review {
    pub(crate) shape: Shape,
    pub(crate) body: Bytes,
}

impl Shape {
    pub(crate) const ALL: [Self; 6] =
        [Self::Provisioned, Self::ByHand, Self::Named, Self::Grown, Self::Volume, Self::Denied];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Provisioned => "claim to be provisioned",
            Self::ByHand => "claim without a class object",
            Self::Named => "claim that names a volume",
            Self::Grown => "bound claim that grows",
            Self::Volume => "volume",
            Self::Denied => "claim that is denied",
        }
    }

    /// The percentage of the mix.
    pub(crate) const fn share(self) -> usize {
        match self {
            Self::Provisioned => 45,
            Self::ByHand | Self::Named => 15,
            Self::Grown | Self::Volume => 10,
            Self::Denied => 5,
        }
    }

    pub(crate) const fn passes(self) -> bool {
        !matches!(self, Self::Denied)
    }

    /// The objects of review number `i` of this shape.
    async fn objects(self, client: &kube::Client, stock: Stock, i: usize) -> Result<Objects> {
        let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());
        // Reviews are spread over all volumes.
        let volume = free_name(i * stock.free / EACH);
        Ok(match self {
            Self::Provisioned => create(&claims, claim(PROVISIONED, "1Gi", json!({}))).await?,
            Self::ByHand => create(&claims, claim(BY_HAND, "1Gi", json!({}))).await?,
            Self::Named => create(&claims, claim(BY_HAND, FREE_SIZE, json!({"volumeName": volume}))).await?,
            Self::Denied => create(&claims, claim(BY_HAND, "11Gi", json!({"volumeName": volume}))).await?,
            Self::Grown => {
                let name = pair_name(i * stock.pairs / EACH);
                let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
                let try_only = PatchParams { dry_run: true, ..PatchParams::default() };
                let old = claims.get(&name).await?;
                let new = claims.patch(&name, &try_only, &Patch::Merge(larger)).await?;
                Objects::new(&new, Some(&old))?
            }
            Self::Volume => {
                let mut volume = volume_object(json!({"generateName": "new-"}), BY_HAND, FREE_SIZE);
                volume["spec"]["claimRef"] = json!({"namespace": "default", "name": format!("to-come-{i}")});
                create(&Api::<PersistentVolume>::all(client.clone()), volume).await?
            }
        })
    }
}

/// A new claim of a class and a size. `more` overrides fields of its spec.
pub(crate) fn claim(class: &str, storage: &str, more: Value) -> Value {
    let mut claim = claim_object(json!({"generateName": "new-"}), class, storage);
    if let (Value::Object(spec), Value::Object(more)) = (&mut claim["spec"], more) {
        spec.extend(more);
    }
    claim
}

/// The new and the old object of a review.
struct Objects {
    new: Value,
    old: Value,
}

impl Objects {
    fn new<K: Serialize>(new: &K, old: Option<&K>) -> Result<Self> {
        Ok(Self { new: serde_json::to_value(new)?, old: serde_json::to_value(old)? })
    }

    /// The review as kube-apiserver 1.36 sends it.
    fn review(&self, uid: u128) -> Bytes {
        let Self { new, old } = self;
        let kind = json!({"group": "", "version": "v1", "kind": new["kind"]});
        let is_claim = new["kind"] == "PersistentVolumeClaim";
        let plural = if is_claim { "persistentvolumeclaims" } else { "persistentvolumes" };
        let resource = json!({"group": "", "version": "v1", "resource": plural});
        let (operation, options) =
            if old.is_null() { ("CREATE", "CreateOptions") } else { ("UPDATE", "UpdateOptions") };
        let uid = format!("{uid:032x}");
        let mut request = json!({
            "uid": format!("{}-{}-{}-{}-{}", &uid[..8], &uid[8..12], &uid[12..16], &uid[16..20], &uid[20..]),
            "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
            "name": new["metadata"]["name"],
            "operation": operation,
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": new, "oldObject": old,
            "dryRun": false,
            "options": {"kind": options, "apiVersion": "meta.k8s.io/v1", "fieldManager": "bench"},
        });
        if is_claim {
            request["namespace"] = new["metadata"]["namespace"].clone();
        }
        let review =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request});
        review.to_string().into()
    }
}

async fn create<K>(objects: &Api<K>, object: Value) -> Result<Objects>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
    let try_only = PostParams { dry_run: true, ..PostParams::default() };
    Objects::new(&objects.create(&try_only, &serde_json::from_value(object)?).await?, None)
}

/// Creates the classes of the claims that are provisioned, and of the bound pairs.
pub(crate) async fn create_classes(client: &kube::Client) -> Result<()> {
    let classes = Api::<k8s_openapi::api::storage::v1::StorageClass>::all(client.clone());
    for name in [PROVISIONED, PAIRS_CLASS] {
        let class = serde_json::from_value(json!({
            "metadata": {"name": name},
            "provisioner": "example.com/provisioner",
            "allowVolumeExpansion": true,
        }))?;
        classes.create(&PostParams::default(), &class).await?;
    }
    Ok(())
}

pub(crate) async fn of_shape(client: &kube::Client, stock: Stock, shape: Shape) -> Result<Vec<Review>> {
    let make = |i: usize| async move {
        let objects = shape.objects(client, stock, i).await?;
        anyhow::Ok(Review { shape, body: objects.review((shape as u128) << 64 | i as u128) })
    };
    stream::iter(0..EACH).map(make).buffered(IN_FLIGHT).try_collect().await
}

/// Reviews of all shapes by their shares, in a random order with a fixed seed.
pub(crate) fn mixed(of_shapes: &[Vec<Review>], number: usize) -> Vec<Review> {
    let mut chance = StdRng::seed_from_u64(1);
    let shapes = hundred();
    let pick = |_| {
        let shape = shapes[chance.random_range(0..shapes.len())];
        let reviews =
            of_shapes.iter().find(|reviews| reviews.first().is_some_and(|first| first.shape == shape));
        reviews.and_then(|reviews| reviews.get(chance.random_range(0..reviews.len())).cloned())
    };
    (0..number).filter_map(pick).collect()
}

fn hundred() -> Vec<Shape> {
    Shape::ALL.into_iter().flat_map(|shape| std::iter::repeat_n(shape, shape.share())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_repeats_and_has_each_shape_in_its_share() {
        let review = |shape: Shape| Review { shape, body: Bytes::from_static(shape.name().as_bytes()) };
        let of_shapes = Shape::ALL.map(|shape| vec![review(shape); 3]);
        assert_eq!(hundred().len(), 100);
        let [mix, again] = [(); 2].map(|()| mixed(&of_shapes, 10_000));
        assert!(
            mix.iter().zip(&again).all(|(one, other)| one.shape == other.shape && one.body == other.body)
        );
        for shape in Shape::ALL {
            let found = mix.iter().filter(|review| review.shape == shape).count();
            let expected = shape.share() * 100;
            assert!(found.abs_diff(expected) < 200, "{shape:?}: {found} of {expected}");
        }
    }

    #[test]
    fn a_review_has_the_form_that_the_api_server_sends() {
        let mut new = claim(BY_HAND, "1Gi", json!({"volumeName": "v"}));
        new["kind"] = "PersistentVolumeClaim".into();
        new["metadata"]["namespace"] = "default".into();
        let review: Value = serde_json::from_slice(&Objects { old: new.clone(), new }.review(7)).unwrap();
        let request = &review["request"];
        assert_eq!(request["uid"], "00000000-0000-0000-0000-000000000007");
        assert_eq!((&request["operation"], &request["namespace"]), (&"UPDATE".into(), &"default".into()));
        assert_eq!(request["object"]["spec"]["volumeName"], "v");
    }
}
