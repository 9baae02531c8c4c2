package recyclebin

import (
	"bytes"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// decoder reads stored objects: custom resources are in JSON, all others in protobuf.
type decoder struct {
	runtime.Decoder

	types *runtime.Scheme
}

func newDecoder() (decoder, error) {
	types := runtime.NewScheme()
	install.Install(types)
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(types); err != nil {
			return decoder{}, fmt.Errorf("register types: %w", err)
		}
	}
	return decoder{serializer.NewCodecFactory(types).UniversalDeserializer(), types}, nil
}

// decode returns a stored object as the API shows it.
func (d decoder) decode(value []byte) (*unstructured.Unstructured, error) {
	if bytes.HasPrefix(value, []byte("{")) && !bytes.Contains(value[:min(len(value), 100)], []byte(apiextensionsv1.GroupName)) {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(value); err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		return o, nil
	}
	decoded, kind, err := d.Decode(value, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	if kind.Group == apiextensionsv1.GroupName {
		// Definitions are stored in a version that is not served.
		internal, err := d.types.ConvertToVersion(decoded, apiextensions.SchemeGroupVersion)
		if err == nil {
			decoded, err = d.types.ConvertToVersion(internal, apiextensionsv1.SchemeGroupVersion)
		}
		if err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		kind.Version = apiextensionsv1.SchemeGroupVersion.Version
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(decoded)
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	o := &unstructured.Unstructured{Object: content}
	o.SetGroupVersionKind(*kind)
	return o, nil
}

// resourceOf returns the plural name of the resource of an object. The key of a custom resource begins with its group
// and this name. For a built-in kind, the name follows from the kind.
func resourceOf(prefix, key string, kind schema.GroupVersionKind) string {
	parts := strings.Split(strings.TrimPrefix(key, prefix+"/"), "/")
	if len(parts) > 2 && parts[0] == kind.Group {
		return parts[1]
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.Resource
}
