//! Lists of any length, page by page.

use kube::api::{ListParams, ObjectList};

/// Number of objects in one page: an answer with as many of the largest ones stays below the limit of an answer.
const PAGE: u32 = 50;

/// Asks `list` for page after page until there is no further one. Returns what all of them hold.
///
/// # Errors
/// The first page that failed: half of what exists proves nothing.
pub async fn all_pages<K, E, F>(params: ListParams, mut list: impl FnMut(ListParams) -> F) -> Result<Vec<K>, E>
where
    K: Clone,
    F: Future<Output = Result<ObjectList<K>, E>>,
{
    let (mut params, mut all) = (params.limit(PAGE), Vec::new());
    loop {
        let page = list(params.clone()).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn pages_are_asked_for_until_the_last() {
        let mut asked = Vec::new();
        let all = all_pages(ListParams::default(), |params| {
            let (items, next) = match params.continue_token.as_deref() {
                None => (json!([1, 2]), "next"),
                Some(_) => (json!([3]), ""),
            };
            asked.push(params.continue_token);
            let page = json!({"apiVersion": "v1", "kind": "List", "metadata": {"continue": next}, "items": items});
            async { serde_json::from_value::<ObjectList<u8>>(page) }
        });
        assert_eq!(all.await.unwrap(), [1, 2, 3]);
        assert_eq!(asked, [None, Some("next".to_owned())]);
    }
}
