// Command gitops does with a file of manifests what Argo CD does with those of a repository, by its own engine: it compares
// them with a cluster, applies them wave by wave, and prunes what is no longer among them.
//
// It knows its own objects as Argo CD before version 3 does, by the label app.kubernetes.io/instance with the name of the
// Application, which it sets on whatever it applies. What it found or did is printed as one JSON object a line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const instance = "app.kubernetes.io/instance"

// line is what is printed of one object.
type line struct {
	Object  string `json:"object"`
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file of the cluster")
	application := flag.String("application", "", "name of the Application")
	namespace := flag.String("namespace", "default", "of objects that name none")
	limit := flag.Duration("timeout", 5*time.Minute, "of a sync")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: gitops [flags] diff|sync MANIFESTS")
		os.Exit(2)
	}
	ctx, stop := context.WithTimeout(context.Background(), *limit)
	defer stop()
	lines, err := run(ctx, flag.Arg(0), flag.Arg(1), *kubeconfig, *application, *namespace)
	sort.Slice(lines, func(a, b int) bool { return lines[a].Object < lines[b].Object })
	printer := json.NewEncoder(os.Stdout)
	for _, one := range lines {
		if err := printer.Encode(one); err != nil {
			os.Exit(1)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, verb, file, kubeconfig, application, namespace string) ([]line, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	targets, err := kube.SplitYAML(text)
	if err != nil {
		return nil, err
	}
	for _, target := range targets {
		labels := target.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[instance] = application
		target.SetLabels(labels)
	}
	// What belongs to another object is no object of the Application, whatever its labels.
	ours := func(object *unstructured.Unstructured, isRoot bool) (any, bool) {
		managed := isRoot && object.GetLabels()[instance] == application
		return managed, managed
	}
	known := cache.NewClusterCache(config, cache.SetLogr(logr.Discard()), cache.SetPopulateResourceInfoHandler(ours))
	managed := func(resource *cache.Resource) bool {
		is, _ := resource.Info.(bool)
		return is
	}
	if err := known.EnsureSynced(); err != nil {
		return nil, err
	}
	find := func() (sync.ReconciliationResult, error) {
		live, err := known.GetManagedLiveObjs(targets, managed)
		if err != nil {
			return sync.ReconciliationResult{}, err
		}
		return sync.Reconcile(targets, live, namespace, known), nil
	}
	if verb == "sync" {
		return synced(ctx, config, namespace, find)
	}
	found, err := find()
	if err != nil {
		return nil, err
	}
	return compared(found)
}

// synced goes on with one operation, as the controller does, each time with what it finds in the cluster then.
func synced(ctx context.Context, config *rest.Config, namespace string, find func() (sync.ReconciliationResult, error)) ([]line, error) {
	kubectl := &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}
	began := metav1.Now()
	phase, message := common.OperationRunning, ""
	var done []common.ResourceSyncResult
	for {
		found, err := find()
		if err != nil {
			return results(done), err
		}
		step, end, err := sync.NewSyncContext("HEAD", found, config, config, kubectl, namespace,
			sync.WithPrune(true), sync.WithServerSideApplyManager("argocd-controller"), sync.WithLogr(logr.Discard()),
			sync.WithInitialState(phase, message, done, began))
		if err != nil {
			return results(done), err
		}
		step.Sync()
		phase, message, done = step.GetState()
		end()
		if phase.Completed() {
			if phase != common.OperationSucceeded {
				return results(done), fmt.Errorf("%s: %s", phase, message)
			}
			return results(done), nil
		}
		select {
		case <-ctx.Done():
			return results(done), fmt.Errorf("%s", message)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func results(done []common.ResourceSyncResult) []line {
	var lines []line
	for _, one := range done {
		// Empty while its wave has not come.
		key := one.ResourceKey
		lines = append(lines, line{key.String(), string(one.Status), one.Message})
	}
	return lines
}

// name tells an object by kind, namespace and name.
func name(object *unstructured.Unstructured) string {
	key := kube.GetResourceKey(object)
	return key.String()
}

func compared(found sync.ReconciliationResult) ([]line, error) {
	differences, err := diff.DiffArray(found.Target, found.Live)
	if err != nil {
		return nil, err
	}
	var lines []line
	for index, target := range found.Target {
		live := found.Live[index]
		switch {
		case target == nil:
			lines = append(lines, line{name(live), "extraneous", ""})
		case live == nil:
			lines = append(lines, line{name(target), "missing", ""})
		case differences.Diffs[index].Modified:
			one := differences.Diffs[index]
			message := string(one.NormalizedLive) + " would be " + string(one.PredictedLive)
			lines = append(lines, line{name(target), "out of sync", message})
		default:
			lines = append(lines, line{name(target), "in sync", ""})
		}
	}
	return lines, nil
}
