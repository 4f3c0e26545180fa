// Command flux does with a file of manifests what Flux' kustomize-controller does with those of a Kustomization, by its own
// engine: it applies them in stages, waits for them, compares them with the cluster, and prunes what is no longer among them.
//
// It knows its own objects by labels with the name of the Kustomization, which it sets on whatever it applies. What it found or
// did is printed as one JSON object a line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// group is that of the annotations by which an object says what Flux may do with it.
const group = "kustomize.toolkit.fluxcd.io"

// namespace is that of the Kustomization.
const namespace = "flux-system"

// line is what is printed of one object.
type line struct {
	Object  string `json:"object"`
	State   string `json:"state"`
	Message string `json:"message,omitempty"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file of the cluster")
	name := flag.String("name", "", "of the Kustomization")
	former := flag.String("former", "", "MANIFESTS of the revision before, of which apply prunes what is no longer there")
	limit := flag.Duration("timeout", 5*time.Minute, "of a run")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: flux [flags] apply|diff|prune MANIFESTS")
		os.Exit(2)
	}
	ctx, stop := context.WithTimeout(context.Background(), *limit)
	defer stop()
	lines, err := run(ctx, flag.Arg(0), flag.Arg(1), *former, *kubeconfig, *name, *limit)
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

func run(ctx context.Context, verb, file, former, kubeconfig, name string, limit time.Duration) ([]line, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	manager, err := connect(config)
	if err != nil {
		return nil, err
	}
	objects, err := read(manager, file, name)
	if err != nil {
		return nil, err
	}
	switch verb {
	case "apply":
		lines, err := apply(ctx, manager, objects, limit)
		if err != nil || former == "" {
			return lines, err
		}
		before, err := read(manager, former, name)
		if err != nil {
			return lines, err
		}
		left := object.UnstructuredSetToObjMetadataSet(before).Diff(object.UnstructuredSetToObjMetadataSet(objects))
		var stale []*unstructured.Unstructured
		for _, one := range before {
			if left.Contains(object.UnstructuredToObjMetadata(one)) {
				stale = append(stale, one)
			}
		}
		pruned, err := prune(ctx, manager, stale, name)
		return append(lines, pruned...), err
	case "diff":
		return diff(ctx, manager, objects)
	case "prune":
		return prune(ctx, manager, objects, name)
	}
	return nil, fmt.Errorf("no such verb: %s", verb)
}

// read reads manifests as those of a Kustomization.
func read(manager *ssa.ResourceManager, file, name string) ([]*unstructured.Unstructured, error) {
	text, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	objects, err := utils.ReadObjects(text)
	if err != nil {
		return nil, err
	}
	if err := normalize.UnstructuredList(objects); err != nil {
		return nil, err
	}
	manager.SetOwnerLabels(objects, name, namespace)
	return objects, nil
}

func connect(config *rest.Config) (*ssa.ResourceManager, error) {
	config.QPS, config.Burst = 50, 100
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		return nil, err
	}
	reader, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		return nil, err
	}
	poller := polling.NewStatusPoller(reader, mapper, polling.Options{})
	return ssa.NewResourceManager(reader, poller, ssa.Owner{Field: "kustomize-controller", Group: group}), nil
}

// apply applies the objects as a Kustomization with wait: true does.
func apply(ctx context.Context, manager *ssa.ResourceManager, objects []*unstructured.Unstructured, limit time.Duration) ([]line, error) {
	options := ssa.DefaultApplyOptions()
	options.ExclusionSelector = map[string]string{group + "/reconcile": "disabled", group + "/ssa": "Ignore"}
	options.IfNotPresentSelector = map[string]string{group + "/ssa": "IfNotPresent"}
	changes, err := manager.ApplyAllStaged(ctx, objects, options)
	if err != nil {
		return nil, err
	}
	set := object.UnstructuredSetToObjMetadataSet(objects)
	err = manager.WaitForSetWithContext(ctx, set, ssa.WaitOptions{Interval: time.Second, Timeout: limit, FailFast: false})
	return told(changes), err
}

func diff(ctx context.Context, manager *ssa.ResourceManager, objects []*unstructured.Unstructured) ([]line, error) {
	var lines []line
	for _, one := range objects {
		entry, live, merged, err := manager.Diff(ctx, one, ssa.DefaultDiffOptions())
		if err != nil {
			return lines, err
		}
		message := ""
		if live != nil && merged != nil && entry.Action != ssa.UnchangedAction {
			before, _ := json.Marshal(live)
			after, _ := json.Marshal(merged)
			message = string(before) + " would be " + string(after)
		}
		lines = append(lines, line{entry.Subject, string(entry.Action), message})
	}
	return lines, nil
}

// prune deletes the objects, as those of a former revision that the next one lacks: those that are the Kustomization's, and that
// do not say that they are to stay.
func prune(ctx context.Context, manager *ssa.ResourceManager, objects []*unstructured.Unstructured, name string) ([]line, error) {
	changes, err := manager.DeleteAll(ctx, objects, ssa.DeleteOptions{
		PropagationPolicy: metav1.DeletePropagationBackground,
		Inclusions:        manager.GetOwnerLabels(name, namespace),
		Exclusions:        map[string]string{group + "/prune": "disabled", group + "/reconcile": "disabled"},
	})
	if err != nil {
		return nil, err
	}
	return told(changes), manager.WaitForSetTermination(changes, ssa.WaitOptions{Interval: time.Second, Timeout: 2 * time.Minute})
}

func told(changes *ssa.ChangeSet) []line {
	var lines []line
	for _, entry := range changes.Entries {
		lines = append(lines, line{entry.Subject, string(entry.Action), ""})
	}
	return lines
}
