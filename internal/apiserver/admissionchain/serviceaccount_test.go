package admissionchain

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func account(name string, change func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	if change != nil {
		change(a)
	}
	return a
}

func pod(change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
	p.Spec.Containers = []corev1.Container{{Name: "c"}, {Name: "d"}}
	if change != nil {
		change(p)
	}
	return p
}

// serviceAccountPlugin returns the plug-in on a server with the accounts. Its cache is empty: it reads live.
func serviceAccountPlugin(t *testing.T, accounts ...runtime.Object) (*serviceAccount, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(append(accounts, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})...)
	p := newServiceAccount(client, informers.NewSharedInformerFactory(client, 0))
	p.volumeName = func() string { return "kube-api-access-abcde" }
	return p, client
}

func creation(pod *corev1.Pod) admission.Attributes {
	return admission.NewAttributesRecord(pod, nil, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
		corev1.SchemeGroupVersion.WithResource("pods"), "", admission.Create, nil, false, nil)
}

// mounts describes which containers mount which volumes at which paths.
func mounts(p *corev1.Pod) string {
	var words []string
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			words = append(words, c.Name+" "+m.Name+" at "+strings.TrimPrefix(m.MountPath, "/var/run/secrets/kubernetes.io/"))
		}
	}
	for _, v := range p.Spec.Volumes {
		words = append(words, v.Name)
	}
	return strings.Join(words, ", ")
}

func TestPodsMountToken(t *testing.T) {
	no, yes := false, true
	never := func(a *corev1.ServiceAccount) { a.AutomountServiceAccountToken = &no }
	const everywhere = "i kube-api-access-abcde at serviceaccount, c kube-api-access-abcde at serviceaccount, d kube-api-access-abcde at serviceaccount, kube-api-access-abcde"
	own := func(containers ...int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = nil
			for _, i := range containers {
				p.Spec.Containers[i].VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: mountPath}}
			}
		}
	}
	for name, test := range map[string]struct {
		account *corev1.ServiceAccount
		pod     *corev1.Pod
		want    string
	}{
		"by default":                {account("default", nil), pod(nil), everywhere},
		"the account is against":    {account("default", never), pod(nil), ""},
		"the pod wants it":          {account("default", never), pod(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = &yes }), everywhere},
		"the pod is against":        {account("default", nil), pod(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = &no }), ""},
		"one container has its own": {account("default", nil), pod(own(0)), "c own at serviceaccount, d kube-api-access-abcde at serviceaccount, kube-api-access-abcde"},
		"all have their own":        {account("default", nil), pod(own(0, 1)), "c own at serviceaccount, d own at serviceaccount"},
		"the volume is there": {account("default", nil), pod(func(p *corev1.Pod) {
			own()(p)
			p.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-x"}}
		}), "c kube-api-access-x at serviceaccount, d kube-api-access-x at serviceaccount, kube-api-access-x"},
		"a mirror pod": {account("default", nil), pod(func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := serviceAccountPlugin(t, test.account)
			for range 2 { // admission may run again, and adds nothing
				if err := p.Admit(t.Context(), creation(test.pod), nil); err != nil {
					t.Fatal(err)
				}
				if err := p.Validate(t.Context(), creation(test.pod), nil); err != nil {
					t.Fatal(err)
				}
			}
			if got := mounts(test.pod); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestTokenVolume checks that the volume is the same as in Kubernetes.
func TestTokenVolume(t *testing.T) {
	got, err := json.Marshal(tokenVolume())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},` +
		`{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},` +
		`{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}`
	if string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestPodsGetTheirAccount(t *testing.T) {
	build := account("build", func(a *corev1.ServiceAccount) { a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}} })
	p, _ := serviceAccountPlugin(t, build)
	named := pod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "build" })
	if err := p.Admit(t.Context(), creation(named), nil); err != nil || len(named.Spec.ImagePullSecrets) != 1 {
		t.Errorf("%v, with the pull secrets %v", err, named.Spec.ImagePullSecrets)
	}
	own := pod(func(p *corev1.Pod) {
		p.Spec.ServiceAccountName, p.Spec.ImagePullSecrets = "build", []corev1.LocalObjectReference{{Name: "own"}}
	})
	if err := p.Admit(t.Context(), creation(own), nil); err != nil || own.Spec.ImagePullSecrets[0].Name != "own" {
		t.Errorf("%v, with the pull secrets %v", err, own.Spec.ImagePullSecrets)
	}
	missing := pod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "deploy" })
	const want = `pods "p" is forbidden: error looking up service account ns/deploy: serviceaccount "deploy" not found`
	for what, err := range map[string]error{
		"admitted": p.Admit(t.Context(), creation(missing), nil), "valid": p.Validate(t.Context(), creation(missing), nil),
	} {
		if !apierrors.IsForbidden(err) || err.Error() != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	if err := p.Validate(t.Context(), creation(pod(nil)), nil); !apierrors.IsForbidden(err) {
		t.Errorf("a pod without an account: %v", err)
	}
	other := admission.NewAttributesRecord(&corev1.Secret{}, nil, corev1.SchemeGroupVersion.WithKind("Secret"), "ns", "p",
		corev1.SchemeGroupVersion.WithResource("secrets"), "", admission.Create, nil, false, nil)
	if err := p.Admit(t.Context(), other, nil); err != nil {
		t.Error(err)
	}
}

// TestDefaultAccountIsAwaited checks that a pod waits for the account of a new namespace, which appears a
// moment later. Without it the pod is refused, but not at once.
func TestDefaultAccountIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client := serviceAccountPlugin(t)
		go func() {
			time.Sleep(50 * time.Millisecond)
			if _, err := client.CoreV1().ServiceAccounts("ns").Create(context.Background(), account("default", nil), metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		}()
		began := time.Now()
		if err := p.Admit(t.Context(), creation(pod(nil)), nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if err := client.CoreV1().ServiceAccounts("ns").Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		if err := p.Admit(t.Context(), creation(pod(nil)), nil); !apierrors.IsForbidden(err) {
			t.Errorf("without the account: %v", err)
		}
		if took := time.Since(began); took < longestAccountWait/3 || took > longestAccountWait {
			t.Errorf("it was refused after %s", took)
		}
		began = time.Now()
		if err := p.Admit(t.Context(), creation(pod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "x" })), nil); !apierrors.IsForbidden(err) || time.Since(began) > 0 {
			t.Errorf("another account: %v after %s", err, time.Since(began))
		}
	})
}

// TestNoAccountIsAwaitedInALeavingNamespace checks that a pod whose namespace no longer has accounts is refused at once:
// a controller that creates one would be busy for seconds.
func TestNoAccountIsAwaitedInALeavingNamespace(t *testing.T) {
	for name, leave := range map[string]func(*fake.Clientset) error{
		"gone": func(client *fake.Clientset) error {
			return client.CoreV1().Namespaces().Delete(context.Background(), "ns", metav1.DeleteOptions{})
		},
		"terminating": func(client *fake.Clientset) error {
			terminating := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", DeletionTimestamp: &metav1.Time{Time: time.Now()}}}
			_, err := client.CoreV1().Namespaces().Update(context.Background(), terminating, metav1.UpdateOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, client := serviceAccountPlugin(t)
				if err := leave(client); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if err := p.Admit(t.Context(), creation(pod(nil)), nil); !apierrors.IsForbidden(err) || time.Since(began) > 0 {
					t.Errorf("%v after %s", err, time.Since(began))
				}
			})
		})
	}
}

func TestAccountLimitsSecrets(t *testing.T) {
	strict := account("default", func(a *corev1.ServiceAccount) {
		a.Annotations = map[string]string{enforceAnnotation: "true"}
		a.Secrets, a.ImagePullSecrets = []corev1.ObjectReference{{Name: "mine"}}, []corev1.LocalObjectReference{{Name: "registry"}}
	})
	secret := func(name string) []corev1.Volume {
		return []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}}
	}
	env := func(name string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}}
	}
	from := func(name string) []corev1.EnvFromSource {
		return []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}
	}
	mirror := func(change func(*corev1.Pod)) *corev1.Pod {
		p := pod(change)
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		return p
	}
	const ofAccount = " is not allowed because service account default does not reference that "
	for name, test := range map[string]struct {
		account *corev1.ServiceAccount
		pod     *corev1.Pod
		want    string
	}{
		"its own":         {strict, pod(func(p *corev1.Pod) { p.Spec.Volumes, p.Spec.Containers[0].Env = secret("mine"), env("mine") }), ""},
		"any, if it may":  {account("default", nil), pod(func(p *corev1.Pod) { p.Spec.Volumes = secret("x") }), ""},
		"a volume":        {strict, pod(func(p *corev1.Pod) { p.Spec.Volumes = secret("x") }), `volume with secret.secretName="x"` + ofAccount + "secret"},
		"a variable":      {strict, pod(func(p *corev1.Pod) { p.Spec.InitContainers[0].Env = env("x") }), `init container i with envVar E referencing secret.secretName="x"` + ofAccount + "secret"},
		"variables":       {strict, pod(func(p *corev1.Pod) { p.Spec.Containers[0].EnvFrom = from("x") }), `container c with envFrom referencing secret.secretName="x"` + ofAccount + "secret"},
		"a pull secret":   {strict, pod(func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "x"}} }), `imagePullSecrets[0].name="x"` + ofAccount + "imagePullSecret"},
		"a mirror pod":    {strict, mirror(nil), ""},
		"with an account": {strict, mirror(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" }), "a mirror pod may not reference service accounts"},
		"with a secret":   {strict, mirror(func(p *corev1.Pod) { p.Spec.Containers[0].Env = env("x") }), "a mirror pod may not reference secrets"},
		"with a token": {strict, mirror(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: tokenVolume()}}}
		}), "a mirror pod may not use ServiceAccountToken volume projections"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := serviceAccountPlugin(t, test.account)
			if err := p.Admit(t.Context(), creation(test.pod), nil); err != nil {
				t.Fatal(err)
			}
			err := p.Validate(t.Context(), creation(test.pod), nil)
			if (err == nil) != (test.want == "") || err != nil && !strings.HasSuffix(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
	t.Run("an ephemeral container", func(t *testing.T) {
		p, _ := serviceAccountPlugin(t, strict)
		debugged := pod(func(p *corev1.Pod) {
			p.Spec.ServiceAccountName, p.Spec.Volumes = "default", secret("x") // the old pod has this value
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e", Env: env("y")}}}
		})
		a := admission.NewAttributesRecord(debugged, debugged, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
			corev1.SchemeGroupVersion.WithResource("pods"), "ephemeralcontainers", admission.Update, nil, false, nil)
		if err := p.Validate(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), `ephemeral container e with envVar E referencing secret.secretName="y"`) {
			t.Error(err)
		}
	})
}
