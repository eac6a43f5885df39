//! How the types of policies cross the contract.

use bindery_core::{ClaimFact, Quantity, QuantityFormat, SelectorOperator, Spread, Text, VolumeFact};
use bindery_policy::{
    Bound, Candidates, ClaimView, Judged, Metadata, Narrowing, PolicyFault, Reason, Released, Requirement,
    Verdicts, Wish,
};

use super::matcher::bindings::bindery::policy::facts;
use super::matcher::bindings::exports::bindery::policy::match_;
use super::reclaimer::bindings::exports::bindery::policy::reclaim;

/// To the contract's type.
pub(super) trait Lower {
    type Wit;
    fn lower(&self) -> Self::Wit;
}

impl Lower for ClaimView {
    type Wit = facts::Claim;
    fn lower(&self) -> facts::Claim {
        facts::Claim {
            request: facts::Quantity { whole: self.request.whole, nanos: self.request.nanos },
            facts: self.facts.iter().map(|fact| fact.as_ref().map(ToString::to_string)).collect(),
        }
    }
}

impl Lower for Candidates {
    type Wit = match_::Candidates;
    fn lower(&self) -> match_::Candidates {
        match_::Candidates {
            whole: self.whole.clone(),
            nanos: self.nanos.clone(),
            texts: self.texts.iter().map(ToString::to_string).collect(),
            columns: self.columns.clone(),
            spread: self.spread.clone(),
        }
    }
}

impl From<facts::Metadata> for Metadata {
    fn from(wit: facts::Metadata) -> Self {
        Self {
            name: wit.name.into(),
            version: wit.version.into(),
            description: wit.description.into(),
            claim_facts: wit.claim_facts.into_iter().map(claim_fact).collect(),
            columns: wit.columns.into_iter().map(volume_fact).collect(),
            spread: wit.spread.map(|spread| Spread {
                by: volume_fact(spread.by),
                among: spread.among.into_iter().map(claim_fact).collect(),
            }),
            reasons: wit.reasons.into_iter().map(reason).collect(),
            scores: wit.scores,
            settings_schema: wit.settings_schema,
        }
    }
}

fn reason(facts::Reason { name, text }: facts::Reason) -> Reason {
    Reason { name: name.into(), text: text.into() }
}

fn claim_fact(wit: facts::ClaimFact) -> ClaimFact {
    match wit {
        facts::ClaimFact::Namespace => ClaimFact::Namespace,
        facts::ClaimFact::Name => ClaimFact::Name,
        facts::ClaimFact::Label(key) => ClaimFact::Label(key.into()),
        facts::ClaimFact::Annotation(key) => ClaimFact::Annotation(key.into()),
        facts::ClaimFact::NamespaceLabel(key) => ClaimFact::NamespaceLabel(key.into()),
        facts::ClaimFact::ClassParameter(name) => ClaimFact::ClassParameter(name.into()),
        facts::ClaimFact::OwnerName => ClaimFact::OwnerName,
        facts::ClaimFact::OwnerOrdinal => ClaimFact::OwnerOrdinal,
    }
}

fn volume_fact(wit: facts::VolumeFact) -> VolumeFact {
    match wit {
        facts::VolumeFact::Label(key) => VolumeFact::Label(key.into()),
        facts::VolumeFact::Annotation(key) => VolumeFact::Annotation(key.into()),
        facts::VolumeFact::Topology(key) => VolumeFact::Topology(key.into()),
        facts::VolumeFact::ClassName => VolumeFact::ClassName,
        facts::VolumeFact::Source => VolumeFact::Source,
        facts::VolumeFact::Driver => VolumeFact::Driver,
        facts::VolumeFact::ReclaimPolicy => VolumeFact::ReclaimPolicy,
    }
}

/// A narrowing as the component gave it. The error says what has no meaning.
pub(super) fn narrowing(wit: match_::Narrowing) -> Result<Narrowing, PolicyFault> {
    let bound = |bound: match_::Bound| {
        let facts::Quantity { whole, nanos } = bound.quantity;
        if nanos >= 1_000_000_000 {
            return Err(PolicyFault::BadAnswer("its largest capacity has 10^9 or more nanos".to_owned()));
        }
        let quantity = Quantity { whole, nanos, format: QuantityFormat::BinarySi };
        Ok(Bound { quantity, reason: bound.reason })
    };
    Ok(Narrowing {
        requirements: wit.requirements.into_iter().map(requirement).collect(),
        at_most: wit.at_most.map(bound).transpose()?,
        judge: wit.judge,
    })
}

fn requirement(wit: match_::Requirement) -> Requirement {
    Requirement {
        column: wit.column,
        operator: match wit.operator {
            match_::Operator::In => SelectorOperator::In,
            match_::Operator::NotIn => SelectorOperator::NotIn,
            match_::Operator::Exists => SelectorOperator::Exists,
            match_::Operator::DoesNotExist => SelectorOperator::DoesNotExist,
        },
        values: wit.values.into_iter().map(Text::from).collect(),
        reason: wit.reason,
    }
}

impl From<match_::Verdicts> for Verdicts {
    fn from(match_::Verdicts { reasons, scores }: match_::Verdicts) -> Self {
        Self { reasons, scores }
    }
}

impl Lower for Released {
    type Wit = (reclaim::Volume, Option<reclaim::FormerClaim>);
    fn lower(&self) -> Self::Wit {
        let texts = |values: &[Option<Text>]| {
            values.iter().map(|value| value.as_ref().map(ToString::to_string)).collect()
        };
        let capacity = facts::Quantity { whole: self.capacity.whole, nanos: self.capacity.nanos };
        let volume = reclaim::Volume { capacity, columns: texts(&self.columns) };
        (volume, self.claim.as_ref().map(|facts| reclaim::FormerClaim { facts: texts(facts) }))
    }
}

impl From<reclaim::Verdict> for Judged {
    fn from(reclaim::Verdict { fate, reason }: reclaim::Verdict) -> Self {
        let wish = match fate {
            reclaim::Fate::ByPolicy => Wish::ByPolicy,
            reclaim::Fate::Keep => Wish::Keep,
            reclaim::Fate::Delete => Wish::Delete,
            reclaim::Fate::DeleteAfter(seconds) => Wish::DeleteAfter(seconds),
            reclaim::Fate::Recycle => Wish::Recycle,
            reclaim::Fate::OfferAgain => Wish::OfferAgain,
        };
        Self { wish, reason }
    }
}
