//go:build tools

// Package tools names the programs that the bed builds, so that go.mod and go.sum hold all they need.
package tools

import (
	_ "sigs.k8s.io/krew/cmd/krew"
)
