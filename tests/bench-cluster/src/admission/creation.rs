//! The time that a reviewer adds to the creation of a claim: no reviewer, CEL in the API server, or the
//! webhook.

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bindery_cluster::{BY_HAND, FREE_SIZE, free_name, pair_name};
use bindery_kit::{percentiles, poll};
use http::StatusCode;
use http_body_util::BodyExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::Arguments;
use super::reviews::{PROVISIONED, claim};
use super::webhook::Webhook;
use crate::figures::{head, row};

/// How often and how long a change of the configuration is awaited.
const TRY_EVERY: Duration = Duration::from_millis(100);
const TRY_MAX: Duration = Duration::from_secs(300);
/// The longest turn of a reviewer. If one creation takes seconds, a few are enough.
const TURN_MAX: Duration = Duration::from_secs(30);

/// The rules in CEL.
const POLICIES: &str = include_str!("../../policies.yaml");
/// The configuration of the webhook, without its address.
const WEBHOOK: &str = include_str!("../../webhook.yaml");

/// The policy whose rules deny; the others warn.
const DENIES: &str = "bindery-denies";
/// The rules by which all reviewers deny the claims of this benchmark.
const DENYING_RULES: [&str; 5] =
    ["volume-too-small", "class-differs", "access-modes-missing", "volume-mode-differs", "volume-of-other"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reviewer {
    None,
    /// CEL with the right volume as its parameter, which measures the rules alone.
    OneVolume,
    /// CEL with every volume as a parameter, which finds the volume that a claim names.
    EveryVolume,
    Webhook,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Warned,
    /// Denied by this rule.
    Denied(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimShape {
    Provisioned,
    Named,
}

struct Cluster<'a> {
    client: kube::Client,
    webhook: &'a Webhook,
    policies: Vec<ValidatingAdmissionPolicy>,
}

impl Reviewer {
    const ALL: [Self; 4] = [Self::None, Self::OneVolume, Self::EveryVolume, Self::Webhook];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OneVolume => "CEL, given the volume",
            Self::EveryVolume => "CEL, over all volumes",
            Self::Webhook => "webhook",
        }
    }
}

impl ClaimShape {
    const ALL: [Self; 2] = [Self::Provisioned, Self::Named];

    fn name(self) -> &'static str {
        match self {
            Self::Provisioned => "to be provisioned",
            Self::Named => "names a volume",
        }
    }

    fn claim(self) -> Value {
        match self {
            Self::Provisioned => claim(PROVISIONED, "1Gi", json!({})),
            Self::Named => naming(FREE_SIZE, json!({})),
        }
    }
}

/// A claim that names the first free volume, unless `more` names another one.
fn naming(storage: &str, more: Value) -> Value {
    let mut claim = claim(BY_HAND, storage, more);
    if claim["spec"]["volumeName"].is_null() {
        claim["spec"]["volumeName"] = free_name(0).into();
    }
    claim
}

/// A claim that is larger than its volume, which all reviewers deny.
fn too_large() -> (Value, Outcome) {
    (naming("11Gi", json!({})), Outcome::Denied("volume-too-small"))
}

/// Claims on which all reviewers must agree, whichever volume CEL has as its parameter.
fn agreed() -> [(Value, Outcome); 6] {
    let naming = |more: Value| naming(FREE_SIZE, more);
    [
        (ClaimShape::Provisioned.claim(), Outcome::Passed),
        (ClaimShape::Named.claim(), Outcome::Passed),
        too_large(),
        (naming(json!({"storageClassName": "another"})), Outcome::Denied("class-differs")),
        (naming(json!({"accessModes": ["ReadWriteMany"]})), Outcome::Denied("access-modes-missing")),
        (naming(json!({"volumeMode": "Block"})), Outcome::Denied("volume-mode-differs")),
    ]
}

/// Further claims, on which the webhook must agree with CEL over all volumes.
fn agreed_over_all_volumes() -> [(Value, Outcome); 2] {
    let taken = json!({"volumeName": pair_name(0), "storageClassName": "class-0"});
    [(naming("1Gi", json!({})), Outcome::Warned), (naming("1Gi", taken), Outcome::Denied("volume-of-other"))]
}

/// Prints a table: the time of a creation, by reviewer.
pub(crate) async fn measure(client: kube::Client, webhook: &Webhook, arguments: &Arguments) -> Result<()> {
    let policies = serde_saphyr::from_str(POLICIES)?;
    let cluster = Cluster { client, webhook, policies };
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(cluster.client.clone());
    for policy in &cluster.policies {
        policies.create(&PostParams::default(), policy).await?;
    }
    let mut latencies = [const { [const { Vec::new() }; ClaimShape::ALL.len()] }; Reviewer::ALL.len()];
    for round in 0..arguments.rounds {
        for (reviewer, of_shapes) in Reviewer::ALL.into_iter().zip(&mut latencies) {
            cluster.set_up(reviewer).await?;
            if round == 0 {
                cluster.check(reviewer).await?;
            }
            cluster.create(arguments.creations.div_ceil(arguments.rounds), of_shapes).await?;
            cluster.take_down(reviewer).await?;
        }
    }
    print(&latencies)
}

fn print(latencies: &[[Vec<f64>; 2]; 4]) -> Result<()> {
    writeln!(std::io::stdout())?;
    head("<claim | <reviewer | creations | p50 ms | p99 ms | added at p50 ms | added : the webhook's")?;
    for (index, shape) in ClaimShape::ALL.into_iter().enumerate() {
        let figures = Reviewer::ALL
            .map(|reviewer| percentiles(latencies[reviewer as usize][index].iter().copied(), [500, 990]));
        let added = |reviewer: Reviewer| figures[reviewer as usize][0] - figures[0][0];
        for reviewer in Reviewer::ALL {
            let ([p50, p99], added_ms) = (figures[reviewer as usize], added(reviewer));
            let ratio = match reviewer {
                Reviewer::None => String::new(),
                _ => format!("{:.2}", added_ms / added(Reviewer::Webhook)),
            };
            let (name, number) = (reviewer.name(), latencies[reviewer as usize][index].len());
            let shape = shape.name();
            row(&format!("{shape} | {name} | {number} | {p50:.2} | {p99:.2} | {added_ms:.2} | {ratio}"))?;
        }
    }
    Ok(())
}

impl Cluster<'_> {
    /// Configures a reviewer, and waits until it takes effect.
    async fn set_up(&self, reviewer: Reviewer) -> Result<()> {
        match reviewer {
            Reviewer::None => return Ok(()),
            Reviewer::OneVolume => self.bind_policies(Some(&free_name(0))).await?,
            Reviewer::EveryVolume => self.bind_policies(None).await?,
            Reviewer::Webhook => {
                self.webhooks().create(&PostParams::default(), &self.configuration()?).await?;
            }
        }
        let (claim, outcome) = too_large();
        self.until(reviewer, &claim, outcome).await
    }

    /// Checks that the reviewer agrees with the others.
    async fn check(&self, reviewer: Reviewer) -> Result<()> {
        let of_all =
            matches!(reviewer, Reviewer::EveryVolume | Reviewer::Webhook).then(agreed_over_all_volumes);
        for (claim, outcome) in agreed().into_iter().chain(of_all.into_iter().flatten()) {
            let outcome = if reviewer == Reviewer::None { Outcome::Passed } else { outcome };
            let found = self.attempt(&claim).await?;
            ensure!(found == outcome, "{reviewer:?}: {found:?} instead of {outcome:?} for {claim}");
        }
        Ok(())
    }

    async fn take_down(&self, reviewer: Reviewer) -> Result<()> {
        let now = DeleteParams::default();
        match reviewer {
            Reviewer::None => {}
            Reviewer::OneVolume | Reviewer::EveryVolume => {
                for policy in &self.policies {
                    self.bindings().delete(&policy.name_any(), &now).await?;
                }
            }
            Reviewer::Webhook => drop(self.webhooks().delete("bindery", &now).await?),
        }
        self.until(Reviewer::None, &too_large().0, Outcome::Passed).await
    }

    /// Binds the policies to one volume and its class, or to all.
    async fn bind_policies(&self, volume: Option<&str>) -> Result<()> {
        for policy in &self.policies {
            let spec = policy.spec.as_ref().context("a policy has a spec")?;
            let is_class =
                spec.param_kind.as_ref().is_some_and(|kind| kind.kind.as_deref() == Some("StorageClass"));
            let mut parameters = json!({"parameterNotFoundAction": "Allow"});
            match volume {
                Some(_) if is_class => parameters["name"] = PROVISIONED.into(),
                Some(volume) => parameters["name"] = volume.into(),
                None => parameters["selector"] = json!({}),
            }
            let name = policy.name_any();
            let action = if name == DENIES { "Deny" } else { "Warn" };
            let binding = serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"policyName": name, "validationActions": [action], "paramRef": parameters},
            }))?;
            self.bindings().create(&PostParams::default(), &binding).await?;
        }
        Ok(())
    }

    /// Creates this many claims of each shape, one after the other, and adds their latencies in milliseconds.
    async fn create(&self, number: usize, of_shapes: &mut [Vec<f64>]) -> Result<()> {
        let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(self.client.clone());
        let began = Instant::now();
        for _ in 0..number {
            for (shape, latencies) in ClaimShape::ALL.into_iter().zip(of_shapes.iter_mut()) {
                let claim = serde_json::from_value(shape.claim())?;
                let sent = Instant::now();
                claims.create(&PostParams::default(), &claim).await?;
                latencies.push(sent.elapsed().as_secs_f64() * 1e3);
            }
            if began.elapsed() > TURN_MAX {
                break;
            }
        }
        Ok(())
    }

    /// Tries a claim until it has this outcome.
    async fn until(&self, reviewer: Reviewer, claim: &Value, outcome: Outcome) -> Result<()> {
        let mut last = None;
        let attempt = async || {
            let found = last.insert(self.attempt(claim).await);
            matches!(found, Ok(found) if *found == outcome).then_some(())
        };
        let found = poll(TRY_EVERY, TRY_MAX, attempt).await;
        found.with_context(|| format!("{reviewer:?} has no effect: {last:?} and not {outcome:?} for {claim}"))
    }

    /// The outcome of a dry run.
    ///
    /// # Errors
    ///
    /// When the request fails, or an unknown rule denies the claim.
    async fn attempt(&self, claim: &Value) -> Result<Outcome> {
        let mut claim = claim.clone();
        claim["apiVersion"] = "v1".into();
        claim["kind"] = "PersistentVolumeClaim".into();
        let request = http::Request::post("/api/v1/namespaces/default/persistentvolumeclaims?dryRun=All")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(claim.to_string().into_bytes().into())?;
        let (head, body) = self.client.send(request).await.context("a dry run failed")?.into_parts();
        let body = body.collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&body);
        if head.status == StatusCode::CREATED {
            let is_warned = head.headers.contains_key(http::header::WARNING);
            return Ok(if is_warned { Outcome::Warned } else { Outcome::Passed });
        }
        let rule = DENYING_RULES.into_iter().find(|rule| text.contains(rule));
        rule.map(Outcome::Denied).with_context(|| format!("a dry run was answered {}: {text}", head.status))
    }

    fn configuration(&self) -> Result<ValidatingWebhookConfiguration> {
        let mut configuration: Value = serde_saphyr::from_str(WEBHOOK)?;
        configuration["webhooks"][0]["clientConfig"] = json!({
            "url": format!("https://127.0.0.1:{}/validate", self.webhook.port),
            "caBundle": ByteString(self.webhook.authority.clone()),
        });
        Ok(serde_json::from_value(configuration)?)
    }

    fn webhooks(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    fn bindings(&self) -> Api<ValidatingAdmissionPolicyBinding> {
        Api::all(self.client.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifests_parse_and_have_the_rules_that_deny() {
        let policies: Vec<ValidatingAdmissionPolicy> = serde_saphyr::from_str(POLICIES).unwrap();
        let rules = |policy: &ValidatingAdmissionPolicy| {
            let validations = policy.spec.clone().and_then(|spec| spec.validations).unwrap_or_default();
            validations.into_iter().filter_map(|validation| validation.message).collect::<Vec<_>>()
        };
        assert_eq!(policies.iter().flat_map(rules).count(), 13);
        let denying = policies.iter().find(|policy| policy.name_any() == DENIES).map(rules).unwrap();
        assert!(DENYING_RULES.iter().all(|rule| denying.iter().any(|found| found == rule)), "{denying:?}");
        let webhook: Value = serde_saphyr::from_str(WEBHOOK).unwrap();
        assert_eq!(webhook["webhooks"][0]["name"], "claims.bindery.dev");
    }
}
