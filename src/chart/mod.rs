//! The packager: find a chart, merge values, validate, render, list objects. Knows nothing of clusters or the network.
