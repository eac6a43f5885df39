//! A repository of a registry, by the requests of OCI distribution 1.1.

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, LINK};
use http::{HeaderMap, Method, StatusCode, Uri};

use super::transport::Answer;
use super::{Call, Remote, location, target};
use crate::digest::Digest;
use crate::error::{RegistryError, Result, invalid, too_large};
use crate::limits::{ANSWER_MAX, MANIFEST_MAX, PAGES_MAX, REFERRERS_MAX};
use crate::manifest::{Descriptor, Index, Manifest};
use crate::media;
use crate::repository::{Name, Repository};

/// The header by which a registry says that it has made a manifest a referrer.
const SUBJECT: &str = "oci-subject";
/// How registries answer that do not have the referrers API. The specification says 404; as
/// go-containerregistry does, and so cosign, the others are understood too.
const NO_REFERRERS_API: [StatusCode; 3] =
    [StatusCode::NOT_FOUND, StatusCode::BAD_REQUEST, StatusCode::NOT_ACCEPTABLE];

#[async_trait]
impl Repository for Remote {
    async fn manifest(&self, name: &Name) -> Result<Vec<u8>> {
        let accept = format!("{}, {}", media::MANIFEST, media::INDEX);
        let uri = self.uri(&format!("manifests/{name}"))?;
        let answer = self.call(get(uri, &[(ACCEPT, &accept)], MANIFEST_MAX)).await?;
        let what = format!("manifest {name}");
        let answer = self.with_status(answer, StatusCode::OK, &what)?;
        if let Name::Digest(digest) = name {
            digest.check(&answer.body, &format!("{}/{}: {what}", self.host, self.repository))?;
        }
        Ok(answer.body.into())
    }

    async fn blob(&self, blob: &Descriptor, max: usize) -> Result<Vec<u8>> {
        let what = format!("{}/{}: blob {}", self.host, self.repository, blob.digest);
        let size = usize::try_from(blob.size).unwrap_or(usize::MAX);
        if size > max {
            return Err(too_large(&what, max));
        }
        let uri = self.uri(&format!("blobs/{}", blob.digest))?;
        // No byte more than the manifest says is read.
        let answer = self.call_and_follow(get(uri, &[], size)).await?;
        let answer = self.with_status(answer, StatusCode::OK, &format!("blob {}", blob.digest))?;
        blob.digest.check(&answer.body, &what)?;
        Ok(answer.body.into())
    }

    async fn referrers(&self, subject: &Digest) -> Result<Vec<Descriptor>> {
        let mut uri = self.uri(&format!("referrers/{subject}"))?;
        let mut found = Vec::new();
        for page in 0..PAGES_MAX {
            let answer = self.call(get(uri.clone(), &[(ACCEPT, media::INDEX)], MANIFEST_MAX)).await?;
            match answer.status {
                StatusCode::OK => {}
                // A registry without the API: the referrers are in a list under a tag.
                status if page == 0 && NO_REFERRERS_API.contains(&status) => {
                    return self.tagged_referrers(subject).await.map(|index| referrers(&index));
                }
                status => return Err(self.failed("referrers", status, &answer.body)),
            }
            found.extend(referrers(&Index::parse(&answer.body, &format!("{uri}"))?));
            match next_page(&uri, &answer.headers)? {
                Some(next) if found.len() < REFERRERS_MAX => uri = next,
                _ => break,
            }
        }
        found.truncate(REFERRERS_MAX);
        Ok(found)
    }

    async fn put_blob(&self, bytes: &[u8]) -> Result<()> {
        let digest = Digest::of(bytes);
        let uri = self.uri(&format!("blobs/{digest}"))?;
        let head = self.call(Call { method: Method::HEAD, ..get(uri, &[], ANSWER_MAX) }).await?;
        if head.status == StatusCode::OK {
            return Ok(());
        }
        let uri = self.uri("blobs/uploads/")?;
        let begin = Call { method: Method::POST, ..get(uri.clone(), &[], ANSWER_MAX) };
        let begun = self.with_status(self.call(begin).await?, StatusCode::ACCEPTED, "an upload")?;
        let at = location(&uri, &begun.headers)?;
        if (at.scheme(), at.authority()) != (uri.scheme(), uri.authority()) {
            return invalid(format!(
                "{} wants the upload at {at}; only its own host is written to",
                self.host
            ));
        }
        let joint = if at.query().is_some() { '&' } else { '?' };
        let at = format!("{at}{joint}digest={digest}");
        let uri: Uri = at.parse().or_else(|error| invalid(format!("{at} is no URL: {error}")))?;
        let what = format!("the upload of {digest}");
        self.put(uri, "application/octet-stream", bytes, &what).await.map(drop)
    }

    async fn put_manifest(&self, name: &Name, manifest: &Manifest, bytes: &[u8]) -> Result<()> {
        let headers = self.put_named(name, media::MANIFEST, bytes).await?;
        let Some(subject) = &manifest.subject else { return Ok(()) };
        if headers.contains_key(SUBJECT) {
            return Ok(());
        }
        let mut index = self.tagged_referrers(&subject.digest).await?;
        let tag = subject.digest.referrers_tag();
        // `cosign copy` makes such a tag. Without it the manifest might be removed.
        if index.media_type.as_ref().is_some_and(|media_type| media_type != media::INDEX) {
            return invalid(format!(
                "{}/{}: the tag {tag} is to have the list of referrers, and is another manifest; remove the \
                 tag, or sign with --format tag",
                self.host, self.repository
            ));
        }
        index.add(&manifest.entry(bytes));
        let index = serde_json::to_vec(&index).unwrap_or_default();
        self.put_named(&Name::Tag(tag), media::INDEX, &index).await.map(drop)
    }
}

impl Remote {
    /// Writes a manifest. Returns the header of the answer.
    async fn put_named(&self, name: &Name, media_type: &str, bytes: &[u8]) -> Result<HeaderMap> {
        let uri = self.uri(&format!("manifests/{name}"))?;
        self.put(uri, media_type, bytes, &format!("manifest {name}")).await
    }

    async fn put(&self, uri: Uri, media_type: &str, bytes: &[u8], what: &str) -> Result<HeaderMap> {
        let headers = [(CONTENT_TYPE, media_type)];
        let (method, body) = (Method::PUT, Bytes::copy_from_slice(bytes));
        let put = self.call(Call { method, uri, headers: &headers, body, max: ANSWER_MAX }).await?;
        Ok(self.with_status(put, StatusCode::CREATED, what)?.headers)
    }

    /// The answer, unless it has another status.
    fn with_status(&self, answer: Answer, status: StatusCode, what: &str) -> Result<Answer> {
        if answer.status == status { Ok(answer) } else { Err(self.failed(what, answer.status, &answer.body)) }
    }

    /// The list of referrers of a registry that does not keep it by itself.
    async fn tagged_referrers(&self, subject: &Digest) -> Result<Index> {
        let tag = subject.referrers_tag();
        match self.manifest(&Name::Tag(tag.clone())).await {
            Ok(bytes) => Index::parse(&bytes, &format!("{}/{}:{tag}", self.host, self.repository)),
            Err(RegistryError::NotFound(_)) => Ok(Index::default()),
            Err(error) => Err(error),
        }
    }
}

fn get<'a>(uri: Uri, headers: &'a [(http::HeaderName, &'a str)], max: usize) -> Call<'a> {
    Call { method: Method::GET, uri, headers, body: Bytes::new(), max }
}

/// The referrers of a list. Some registries give the type of the configuration for that of the artifact: that
/// of an empty one says nothing.
fn referrers(index: &Index) -> Vec<Descriptor> {
    let of_artifact = |kind: &String| kind != media::EMPTY;
    let entries = index.descriptors().take(REFERRERS_MAX);
    entries
        .map(|entry| Descriptor { artifact_type: entry.artifact_type.filter(of_artifact), ..entry })
        .collect()
}

/// The next page of a list, which must be of the same host: `Link: </v2/…>; rel="next"`.
fn next_page(uri: &Uri, headers: &HeaderMap) -> Result<Option<Uri>> {
    let link = headers.get(LINK).and_then(|link| link.to_str().ok());
    let next = link.and_then(|link| link.strip_prefix('<')?.split_once('>'));
    let Some((path, _)) = next.filter(|(_, rest)| rest.contains("next")) else { return Ok(None) };
    let next = target(uri, Some(path))?;
    if (next.scheme(), next.authority()) != (uri.scheme(), uri.authority()) {
        return invalid(format!("{uri}: the next page is at {next}; only the same host is asked"));
    }
    Ok(Some(next))
}
