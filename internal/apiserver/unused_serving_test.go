package apiserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// isUsed waits until the deletion of an object is refused because another one needs it.
func isUsed(t *testing.T, client *client, path, by string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		_, err := client.send(http.MethodDelete, path+"?dryRun=All", "", nil)
		if !apierrors.HasStatusCause(err, protection.Cause) || !strings.Contains(err.Error(), "it is in use by "+by) {
			return fmt.Sprintf("%v, want %s", err, by)
		}
		return ""
	})
}

// isFree waits until an object may be deleted, and deletes it.
func isFree(t *testing.T, client *client, path string) {
	t.Helper()
	eventually.Succeeds(t, func() error {
		_, err := client.send(http.MethodDelete, path, "", nil)
		return err
	})
}

// TestR28_APIServiceStaysWhileItServesObjects: its objects are not here, and cannot be listed without it.
func TestR28_APIServiceStaysWhileItServesObjects(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	orchards := startOrchards(t, s.authority)
	s.expose(t, orchardsService)
	s.register(t, orchardsGroup, orchardsService, orchards.url, map[string]any{"caBundle": s.authority.Certificate()})
	s.becomes(t, "v1."+orchardsGroup, "True Passed")
	client := s.client(t)
	const path = "/apis/apiregistration.k8s.io/v1/apiservices/v1." + orchardsGroup
	if _, err := client.send(http.MethodPatch, path, string(types.MergePatchType), map[string]any{"metadata": map[string]any{"labels": map[string]any{protection.Label: "unused"}}}); err != nil {
		t.Fatal(err)
	}
	trees := s.collection(t, gvk(orchardsGroup, "v1", "Tree"), "trees", metav1.NamespaceDefault, nil)
	trees.create("apple")
	isUsed(t, client, path, "Tree."+orchardsGroup+" default/apple; ")
	trees.mustRemove("apple", nil)
	isFree(t, client, path)
}

// TestR28_WorkloadStaysWhileItServesObjects: a Deployment serves the finalizers and the kinds whose objects have been written by
// a field manager of its name, and kinds that it converts.
func TestR28_WorkloadStaysWhileItServesObjects(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil) // kinds of other tests would go meanwhile, and count as users
	client := s.client(t)
	names := strings.NewReplacer("NS", s.namespace(t), "OTHER", s.namespace(t), "ID", unique("operator"))
	operator := post(t, client, names, manifest{"/apis/apps/v1/namespaces/NS/deployments", `{metadata: {name: ID}, spec: {selector: {matchLabels: {app: ID}},
		template: {metadata: {labels: {app: ID}}, spec: {containers: [{name: c, image: i}]}}}}`}, map[string]string{protection.Label: "unused"})
	definition := post(t, client, names, manifest{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{metadata: {name: widgets.ID.io}, spec: {group: ID.io, scope: Namespaced,
		names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList},
		versions: [{name: v1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`}, nil)
	manager := "?fieldManager=" + names.Replace("ID")
	write := func(path, manager string, content map[string]any) {
		t.Helper()
		if _, err := client.send(http.MethodPatch, path+manager, string(types.MergePatchType), content); err != nil {
			t.Fatal(err)
		}
	}

	served := post(t, client, names, manifest{"/api/v1/namespaces/OTHER/configmaps", "{metadata: {name: served}, data: {a: b}}"}, nil)
	write(served, "?fieldManager=another", mergeFinalizers("acme.io/other"))
	isFree(t, client, operator+"?dryRun=All") // a finalizer of another controller
	write(served, manager, mergeFinalizers("acme.io/other", "acme.io/cleanup"))
	isUsed(t, client, operator, names.Replace("ConfigMap OTHER/served (finalizer acme.io/cleanup)"))
	write(served, manager, mergeFinalizers())

	widget := post(t, client, names, manifest{"/apis/ID.io/v1/namespaces/OTHER/widgets", "{apiVersion: ID.io/v1, kind: Widget, metadata: {name: first}, spec: {a: b}}"}, nil)
	write(widget+"/status", manager, map[string]any{"status": map[string]any{"phase": "Ready"}})
	isUsed(t, client, operator, names.Replace("Widget.ID.io OTHER/first (status)"))
	isFree(t, client, widget)

	post(t, client, names, manifest{"/apis/ID.io/v1/namespaces/OTHER/widgets", "{apiVersion: ID.io/v1, kind: Widget, metadata: {name: second}}"}, nil)
	isFree(t, client, operator+"?dryRun=All") // an instance that it has not written
	post(t, client, names, manifest{"/api/v1/namespaces/NS/services", "{metadata: {name: conversion}, spec: {selector: {app: ID}, ports: [{port: 443}]}}"}, nil)
	write(definition, "", map[string]any{"spec": map[string]any{"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"service": map[string]any{"namespace": names.Replace("NS"), "name": "conversion"}},
	}}}})
	isUsed(t, client, operator, names.Replace("Widget.ID.io OTHER/second"))
	isFree(t, client, definition)
	isFree(t, client, operator)
}
