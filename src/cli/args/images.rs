//! The flags that say where images come from, whichever chart they are of.

use clap::Args;

use crate::chart::ValuesBuilder;

/// Flags that move every image to a mirror.
#[derive(Debug, Clone, Default, Args)]
#[expect(clippy::struct_field_names, reason = "the fields are named as their flags")]
pub(crate) struct ImageArgs {
    /// Registry to pull every image from; it is put before the full image name: `mirror.example/registry.k8s.io/etcd:…`
    #[arg(long, value_name = "REGISTRY")]
    pub(crate) image_registry: Option<String>,

    /// When nodes pull images: `IfNotPresent`, `Always` or `Never`
    #[arg(long, value_name = "POLICY")]
    pub(crate) image_pull_policy: Option<String>,

    /// Image pull Secret in the namespace; may be repeated
    #[arg(long, value_name = "SECRET")]
    pub(crate) image_pull_secret: Vec<String>,
}

impl ImageArgs {
    /// Returns whether none was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.image_registry.is_none() && self.image_pull_policy.is_none() && self.image_pull_secret.is_empty()
    }

    /// Adds the flags that were given to the values.
    pub(crate) fn apply_image_flags(&self, mut builder: ValuesBuilder) -> ValuesBuilder {
        if let Some(registry) = &self.image_registry {
            builder = builder.flag("--image-registry", "imageRegistry", registry);
        }
        if let Some(policy) = &self.image_pull_policy {
            builder = builder.flag("--image-pull-policy", "imagePullPolicy", policy);
        }
        builder.flag_names("--image-pull-secret", "imagePullSecrets", &self.image_pull_secret)
    }
}
