//! Generations of certificates at chosen times, verified as clients do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "seeds are printed")]

mod clocks;
mod keeping;
mod replicas;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bindery_webhook::certificates::{
    Broken, CertificateSettings, Data, Generations, Identity, IdentityError, MintError, Names, SETTLE_MAX,
    SKEW,
};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::ServerCertVerifier as _;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{Error, RootCertStore};

const HOUR: Duration = Duration::from_secs(3600);
const LIFETIME: Duration = Duration::from_secs(90 * 24 * 3600);
const NAME: &str = "bindery.kube-system.svc";

/// A day in 2026.
fn day(day: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs((20_454 + day) * 24 * 3600)
}

fn names() -> Names {
    Names::of_service("bindery", "kube-system").unwrap()
}

fn settings(names: &Names) -> CertificateSettings {
    CertificateSettings { names: names.clone(), lifetime: LIFETIME }
}

/// Whether a client that trusts these authorities accepts this certificate for that name at that time.
fn verify(authorities: &[u8], identity: &Identity, name: &str, now: SystemTime) -> Result<(), Error> {
    let mut trusted = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities) {
        trusted.add(authority.unwrap())?;
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), provider);
    let verifier = verifier.build().map_err(|error| Error::General(error.to_string()))?;
    let [leaf, others @ ..] = identity.chain() else { panic!("no certificate") };
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap());
    verifier.verify_server_cert(leaf, others, &name, &[], now).map(drop)
}

fn first(now: SystemTime) -> Generations {
    Generations::due(None, None, &settings(&names()), now).unwrap().unwrap()
}

/// These generations and the next one.
fn next(generations: &Generations, now: SystemTime) -> Generations {
    Generations::due(Some(generations), None, &settings(&names()), now).unwrap().unwrap()
}

/// The generations that a replica with this knowledge makes when the Secret is gone.
fn anew(known: &Generations, now: SystemTime) -> Generations {
    Generations::due(None, Some(known), &settings(&names()), now).unwrap().unwrap()
}

/// For a replica that has just started: it has seen no authority trusted.
fn never(_: &CertificateDer<'static>) -> Option<Duration> {
    None
}

/// For a replica that has seen every authority trusted for long.
fn long(_: &CertificateDer<'static>) -> Option<Duration> {
    Some(SETTLE_MAX)
}

fn is_due(generations: &Generations, names: &Names, now: SystemTime) -> bool {
    Generations::due(Some(generations), None, &settings(names), now).unwrap().is_some()
}

#[test]
fn the_first_certificate_is_accepted_for_all_its_names() {
    let extra = Names::new(["10.1.2.3".to_owned(), "::1".to_owned()]).unwrap();
    let made = Generations::due(None, None, &settings(&names().and(&extra)), day(0)).unwrap().unwrap();
    let shown = made.showing(never, day(0));
    for name in [NAME, "bindery.kube-system", "bindery.kube-system.svc.cluster.local", "10.1.2.3", "::1"] {
        for now in [day(0) - SKEW, day(0), day(0) + LIFETIME] {
            assert_eq!(verify(&made.authorities(), shown, name, now), Ok(()), "{name}");
        }
        for now in [day(0) - SKEW - Duration::from_secs(1), day(0) + LIFETIME + Duration::from_secs(1)] {
            assert!(verify(&made.authorities(), shown, name, now).is_err(), "{name}");
        }
    }
    assert!(verify(&made.authorities(), shown, "bindery.default.svc", day(0)).is_err());
    assert!(verify(&first(day(0)).authorities(), shown, NAME, day(0)).is_err(), "another authority");
}

#[test]
fn the_next_generation_is_due_when_a_third_of_the_lifetime_is_left() {
    let made = first(day(0));
    assert_eq!(made.renew_at(day(0)), day(60));
    assert!(!is_due(&made, &names(), day(60) - Duration::from_secs(1)));
    assert!(is_due(&made, &names(), day(60)));
    // By a clock that is far ahead, and by one that lags by an hour.
    assert!(is_due(&made, &names(), day(1000)));
    assert!(!is_due(&made, &names(), day(0) - HOUR));
}

#[test]
fn both_authorities_are_trusted_before_the_new_certificate_is_shown() {
    let old = first(day(0));
    let new = next(&old, day(60));
    let shown = old.showing(never, day(0)).clone();
    let short = SETTLE_MAX - Duration::from_secs(1);
    for trusted_for in [None, Some(Duration::ZERO), Some(short)] {
        assert_eq!(*new.showing(|_| trusted_for, day(60)), shown);
    }
    let renewed = new.showing(long, day(60));
    assert_ne!(*renewed, shown);
    for identity in [&shown, renewed] {
        assert_eq!(verify(&new.authorities(), identity, NAME, day(60)), Ok(()));
    }
    // A client that does not know the new authority would refuse the new certificate.
    assert!(verify(&old.authorities(), renewed, NAME, day(60)).is_err());
}

#[test]
fn an_expired_certificate_is_not_shown() {
    let old = first(day(0));
    let new = next(&old, day(60));
    let last = day(90) - SKEW - Duration::from_secs(1);
    assert_eq!(new.showing(never, last), old.showing(never, day(0)));
    assert_eq!(new.until_next(never, last), Duration::from_secs(1));
    assert_eq!(new.showing(never, day(90) - SKEW), new.showing(long, day(60)));
    let late = next(&old, day(91));
    assert_eq!(verify(&late.authorities(), late.showing(never, day(91)), NAME, day(91)), Ok(()));
}

#[test]
fn a_certificate_of_the_future_is_not_shown_beside_a_valid_one() {
    let old = first(day(0));
    // Made two hours early, by a clock that is ahead: it becomes valid in an hour.
    let new = next(&old, day(60));
    let shown = |now| new.showing(long, now);
    let (made, last) = (day(60) - 2 * HOUR, day(60) - Duration::from_secs(1));
    for now in [made, made + HOUR, last] {
        assert_eq!(shown(now), old.showing(long, now));
        assert_eq!(verify(&new.authorities(), shown(now), NAME, now), Ok(()));
    }
    assert_eq!(new.until_next(long, made), HOUR);
    assert_eq!(new.until_next(long, last), Duration::from_secs(1));
    assert_ne!(shown(day(60)), old.showing(long, day(60)));
    assert_eq!(verify(&new.authorities(), shown(day(60)), NAME, day(60)), Ok(()));
}

#[test]
fn where_none_is_valid_a_replica_makes_one_that_all_accept() {
    let day_ago = day(0) - 24 * HOUR;
    for (others, own) in [(day(0) + 2 * HOUR, day(0)), (day(0) + 100 * LIFETIME, day(0)), (day(0), day_ago)] {
        let made = first(others);
        assert!(made.clock_doubt(own).is_some());
        let both = next(&made, own);
        // The right time is one of the two, or neither.
        assert_eq!(verify(&both.authorities(), both.showing(never, own), NAME, day(0)), Ok(()));
        for clock in [others, own] {
            assert!(!is_due(&both, &names(), clock));
        }
    }
    assert_eq!(first(day(0)).clock_doubt(day(0) - HOUR), None);
}

#[test]
fn a_clock_far_ahead_removes_nothing_that_others_show() {
    let old = first(day(0));
    let new = next(&old, day(60));
    // A replica for which all have long expired, and whose Secret is deleted again and again.
    let mut generations = new.clone();
    for made in 1_000..1_005 {
        generations = anew(&generations, day(made));
        for trusted_for in [long, never] {
            let shown = generations.showing(trusted_for, day(60));
            assert_eq!(shown, new.showing(trusted_for, day(60)));
            assert_eq!(verify(&generations.authorities(), shown, NAME, day(60)), Ok(()));
        }
    }
    // The others renew at their time.
    assert!(!is_due(&generations, &names(), day(120) - HOUR));
    assert!(is_due(&generations, &names(), day(120)));
    let renewed = next(&generations, day(120));
    assert_eq!(verify(&renewed.authorities(), renewed.showing(long, day(120)), NAME, day(120)), Ok(()));
}

#[test]
fn a_shorter_lifetime_applies_at_once_a_longer_one_at_renewal() {
    let lasting = |days: u32| CertificateSettings { names: names(), lifetime: 24 * HOUR * days };
    let due = |generations: &Generations, days, now| {
        Generations::due(Some(generations), None, &lasting(days), now).unwrap()
    };
    // Certificates have whole seconds only.
    let now = day(1) + Duration::from_millis(700);
    let years = Generations::due(None, None, &lasting(3_650), now).unwrap().unwrap();
    assert_eq!(due(&years, 3_650, now), None);
    let months = due(&years, 90, now).unwrap();
    assert_eq!(due(&months, 90, now), None);
    let end = day(91);
    assert_eq!(months.showing(long, now).validity().not_after, end);
    // A replica of the previous revision does not undo it.
    assert_eq!(due(&months, 3_650, now), None);
    assert_eq!(due(&months, 3_650, day(61)).unwrap().renew_at(day(61)), day(61) + 24 * HOUR * 3_650 * 2 / 3);
}

#[test]
fn expired_authorities_are_removed_and_no_others() {
    let count = |generations: &Generations| {
        String::from_utf8_lossy(&generations.authorities()).matches("BEGIN CERTIFICATE").count()
    };
    let mut generations = first(day(0));
    assert_eq!(count(&generations), 1);
    // Two expired ones stay: the clock may be wrong.
    for (renewed, authorities) in [(60, 2), (120, 3), (180, 4), (300, 3)] {
        generations = next(&generations, day(renewed));
        assert_eq!(count(&generations), authorities, "day {renewed}");
    }
    // A person deletes the Secret every hour.
    for hour in 0..30 {
        let now = day(300) + HOUR * hour;
        generations = anew(&generations, now);
        assert!(count(&generations) <= 8);
        assert_eq!(verify(&generations.authorities(), generations.showing(never, now), NAME, now), Ok(()));
    }
}

#[test]
fn a_deleted_secret_is_made_anew_beside_the_shown_certificate() {
    let shown = first(day(0));
    let made = anew(&shown, day(1));
    assert_eq!(made.showing(never, day(1)), shown.showing(never, day(1)));
    assert_eq!(verify(&made.authorities(), shown.showing(never, day(1)), NAME, day(1)), Ok(()));
}

#[test]
fn an_untrusted_certificate_is_not_shown_when_another_is_made() {
    let old = first(day(0));
    let new = next(&old, day(60));
    let again = anew(&new, day(60));
    let shown = |generations: &Generations, now| generations.showing(never, now).clone();
    assert_eq!(shown(&again, day(60)), shown(&old, day(60)));
    assert_eq!(verify(&again.authorities(), new.showing(long, day(60)), NAME, day(60)), Ok(()));
    // When the old one ends, a replica that has seen nothing continues with the next oldest.
    let again = anew(&again, day(90) - SKEW);
    assert_eq!(shown(&again, day(90) - SKEW), *new.showing(long, day(60)));
}

#[test]
fn a_replica_shows_the_newest_that_it_has_seen_trusted_for_long() {
    let generations = anew(&anew(&first(day(0)), day(1)), day(2));
    let authorities =
        CertificateDer::pem_slice_iter(&generations.authorities()).collect::<Result<Vec<_>, _>>().unwrap();
    let newest_first = [2, 1, 0].map(|made| day(made) + LIFETIME);
    for (at, end) in newest_first.into_iter().enumerate() {
        let trusted_for = |authority: &CertificateDer<'static>| {
            let is_older = authorities.iter().position(|known| known == authority) >= Some(at);
            Some(if is_older { SETTLE_MAX } else { Duration::from_secs(100) })
        };
        assert_eq!(generations.showing(trusted_for, day(2)).validity().not_after, end);
        let wait = if at == 0 { LIFETIME * 2 / 3 } else { SETTLE_MAX - Duration::from_secs(100) };
        assert_eq!(generations.until_next(trusted_for, day(2)), wait);
    }
}

#[test]
fn at_the_limit_generations_that_may_be_shown_stay() {
    let old = first(day(0));
    let mut generations = old.clone();
    for second in 0..30 {
        let now = day(1) + Duration::from_secs(second);
        let before = generations.showing(long, now).clone();
        generations = anew(&generations, now);
        assert_eq!(generations.showing(never, now), old.showing(never, now), "the oldest");
        assert_eq!(verify(&generations.authorities(), &before, NAME, now), Ok(()), "the newest");
    }
    assert_eq!(Generations::read(&generations.data()).unwrap(), generations);
}

#[test]
fn replicas_with_other_names_add_theirs_and_agree() {
    let other = Names::of_service("bindery", "storage").unwrap();
    let made = first(day(0));
    let both = Generations::due(Some(&made), None, &settings(&other), day(1)).unwrap().unwrap();
    assert!(!is_due(&both, &names(), day(1)));
    assert!(!is_due(&both, &other, day(1)));
    // Unused names are left out of the next generation.
    let renewed = Generations::due(Some(&both), None, &settings(&other), day(61)).unwrap().unwrap();
    assert!(is_due(&renewed, &names(), day(61)));
}

#[test]
fn stored_generations_are_read_back() {
    let generations = next(&first(day(0)), day(60));
    let data = generations.data();
    assert_eq!(
        data.keys().collect::<Vec<_>>(),
        ["ca.crt", "earlier-1.crt", "earlier-1.key", "tls.crt", "tls.key"]
    );
    assert_eq!(Generations::read(&data).unwrap(), generations);
    // The authorities' keys are not stored.
    let keys = data.values().filter(|value| String::from_utf8_lossy(value).contains("PRIVATE KEY"));
    assert_eq!(keys.count(), 2);
}

#[test]
fn an_error_names_the_broken_key() {
    let whole = next(&first(day(0)), day(60)).data();
    let with = |key: &str, value: &[u8]| {
        let mut data = whole.clone();
        data.insert(key.to_owned(), value.to_vec());
        Generations::read(&data).map(drop)
    };
    let without = |key: &str| {
        let mut data: Data = whole.clone();
        data.remove(key);
        Generations::read(&data).map(drop)
    };
    let unreadable = |key, why| Err(Broken::Unreadable { key, why });
    assert_eq!(without("tls.crt"), Err(Broken::Missing("tls.crt")));
    assert_eq!(without("tls.key"), Err(Broken::Missing("tls.key")));
    assert_eq!(without("ca.crt"), Err(Broken::Missing("ca.crt")));
    assert_eq!(with("tls.crt", b"x"), unreadable("tls.crt", IdentityError::NoCertificate));
    assert_eq!(with("tls.key", b"x"), unreadable("tls.key", IdentityError::NoKey));
    assert_eq!(with("tls.key", &whole["earlier-1.key"]), unreadable("tls.key", IdentityError::Mismatch));
    let chain = String::from_utf8(whole["tls.crt"].clone()).unwrap();
    let leaf = chain.split_inclusive("-----END CERTIFICATE-----\n").next().unwrap();
    assert_eq!(with("tls.crt", leaf.as_bytes()), Err(Broken::NoAuthority("tls.crt")));
    let strangers = first(day(0)).data().remove("ca.crt").unwrap();
    assert!(matches!(with("ca.crt", &strangers), Err(Broken::Unreadable { key: "ca.crt", .. })));
    let authority = String::from_utf8(strangers).unwrap();
    let mut mixed = whole.clone();
    mixed.insert("tls.crt".to_owned(), format!("{leaf}{authority}").into_bytes());
    mixed.get_mut("ca.crt").unwrap().extend(authority.into_bytes());
    let unsigned = Generations::read(&mixed).unwrap_err();
    assert!(matches!(unsigned, Broken::Unsigned { key: "tls.crt", .. }), "{unsigned}");
    // Broken earlier generations are ignored.
    assert_eq!(without("earlier-1.crt"), Ok(()));
    assert_eq!(with("earlier-1.key", b"x"), Ok(()));
}

#[test]
fn an_invalid_name_is_an_error() {
    let error = Names::of_service("Bindery", "kube-system").unwrap_err();
    assert_eq!(error, MintError::Name("Bindery.kube-system.svc".to_owned()));
    assert!(error.to_string().contains("Bindery.kube-system.svc"), "{error}");
}
