package variation

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// absent, in place of a value, removes the field.
type absent struct{}

// words are values that are mostly right for fields of a name.
var words = map[string]any{
	"apiGroup": "rbac.authorization.k8s.io", "apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "a",
	"image": "a", "mountPath": "/a", "devicePath": "/dev/a", "path": "/a", "ip": "10.1.1.1", "hostIP": "10.1.1.1", "podIP": "10.1.1.1",
	"cidr": "10.1.0.0/16", "host": "a.example.com", "url": "https://a.example.com", "timeZone": "Etc/UTC", "schedule": "* * * * *",
	"fieldPath": "metadata.name", "resource": "limits.cpu", "topologyKey": "zone", "key": "a", "operator": "Exists", "effect": "NoSchedule",
	"port": int64(80), "containerPort": int64(80), "uid": "00000000-0000-0000-0000-000000000001", "expression": "true",
	"signerName": "example.com/a", "driver": "a.example.com", "nameservers": "10.1.1.1", "accessModes": "ReadWriteOnce", "sysctls": "kernel.shm_rmid_forced",
	"finalizers": "example.com/a", "controllerName": "example.com/a", "provisioner": "example.com/a", "driverName": "a.example.com",
	"conditionType": "example.com/a", "add": "SYS_TIME", "clusterIPs": "None", "ranges": int64(1), "managedBy": "example.com/a",
}

// unusual are values that are accepted with a warning, for fields of a name.
var unusual = map[string]string{
	"ip": "2001:DB8::1", "hostIP": "2001:DB8::1", "addresses": "2001:DB8::1", "externalIPs": "2001:DB8::1", "loadBalancerIP": "2001:DB8::1",
	"nameservers": "2001:DB8::1", "cidr": "2001:DB8::/32", "except": "2001:DB8::/48", "podCIDRs": "2001:DB8::/64",
	"loadBalancerSourceRanges": "2001:DB8::/32", "key": "beta.kubernetes.io/os", "topologyKey": "beta.kubernetes.io/os", "driver": "A.example.com",
}

// sample returns a mostly valid value: an object has its required fields.
func sample(name string, s *Shape) any {
	if len(s.enum) > 0 {
		return s.enum[0]
	}
	word := words[name]
	switch s.form {
	case formObject:
		object := map[string]any{}
		for _, field := range s.required {
			if s.fields[field] != nil {
				object[field] = sample(field, s.fields[field])
			}
		}
		return object
	case formMap:
		key := map[string]string{"limits": "cpu", "requests": "cpu", "capacity": "storage"}[name]
		if key == "" {
			key = "a"
		}
		return map[string]any{key: sample("", s.element)}
	case formList:
		return []any{sample(name, s.element)}
	case formInteger, formNumber, formEither:
		if number, ok := word.(int64); ok {
			return number
		}
		return int64(1)
	case formBoolean:
		return true
	case formQuantity:
		return "1"
	case formString:
		return text(word, s.format)
	case formAny:
	}
	return map[string]any{}
}

func text(word any, format string) string {
	switch format {
	case "date-time":
		return "2026-01-02T03:04:05Z"
	case "byte":
		return "YQ=="
	}
	if text, ok := word.(string); ok {
		return text
	}
	return "a"
}

// whole returns a value with all fields, to a depth.
func whole(name string, s *Shape, depth int) any {
	switch {
	case depth == 0:
		return sample(name, s)
	case s.form == formObject:
		object := map[string]any{}
		for field, below := range s.fields {
			object[field] = whole(field, below, depth-1)
		}
		return object
	case s.form == formList:
		return []any{whole(name, s.element, depth)}
	}
	return sample(name, s)
}

// variants returns the values to put in a place, right and wrong ones, by their descriptions.
func variants(p place) map[string]any {
	name, _ := p.path[len(p.path)-1].(string)
	s := p.shape
	right := sample(name, s)
	all := map[string]any{"right": right, "absent": absent{}, "null": nil}
	if _, isIndex := p.path[len(p.path)-1].(int); isIndex {
		all["absent"] = map[string]any{}
	}
	if len(s.enum) > 0 {
		for _, value := range s.enum {
			all["enum "+value] = value
		}
		maps.Copy(all, map[string]any{"unknown": "Bogus", "type": int64(7), "empty": ""})
		return all
	}
	switch s.form {
	case formString:
		maps.Copy(all, map[string]any{"empty": "", "bad": "-Bad_Name!", "long": strings.Repeat("a", 300), "type": int64(7), "other": "example.com/b", "dashed": "b-1"})
		if value, has := unusual[name]; has {
			all["unusual"] = value
		}
	case formInteger:
		maps.Copy(all, map[string]any{
			"zero": int64(0), "one": int64(1), "negative": int64(-1), "two": int64(2), "large": int64(70000), "huge": int64(1) << 40,
			"type": "1", "fraction": 1.5,
		})
	case formNumber:
		maps.Copy(all, map[string]any{"negative": int64(-1), "type": "1", "fraction": 1.5})
	case formBoolean:
		maps.Copy(all, map[string]any{"false": false, "type": "yes"})
	case formQuantity:
		maps.Copy(all, map[string]any{"zero": "0", "negative": "-1", "milli": "1m", "mega": "1Mi", "bad": "x", "number": 1.5})
	case formEither:
		maps.Copy(all, map[string]any{
			"zero": int64(0), "negative": int64(-1), "percent": "25%", "too much": "150%", "bad": "-Bad_Name!", "large": int64(70000),
			"no percent": "0%", "name": "http", "number": "80", "long": strings.Repeat("a", 70), "type": true,
		})
	case formObject:
		unknown := runtime.DeepCopyJSONValue(right).(map[string]any)
		unknown["bogus"] = "x"
		maps.Copy(all, map[string]any{"empty": map[string]any{}, "type": "x", "list": []any{}, "unknown field": unknown, "whole": whole(name, s, 1)})
	case formList:
		maps.Copy(all, listVariants(s.element, right.([]any)[0]))
	case formMap:
		element := sample("", s.element)
		maps.Copy(all, map[string]any{
			"empty": map[string]any{}, "type": "x", "bad key": map[string]any{"-Bad_Name!": element}, "empty key": map[string]any{"": element},
			"qualified": map[string]any{"example.com/b": element},
			"long":      map[string]any{strings.Repeat("a", 300): element},
		})
		for i, value := range elementVariants(s.element) {
			all["value "+i] = map[string]any{"a": value}
		}
	case formAny:
		maps.Copy(all, map[string]any{"text": "x", "number": int64(1), "object": map[string]any{"a": "b"}})
	}
	return all
}

// listVariants returns values for a list of elements, one of which is right.
func listVariants(element *Shape, right any) map[string]any {
	all := map[string]any{
		"empty": []any{}, "type": "x", "twice": []any{right, runtime.DeepCopyJSONValue(right)}, "null element": []any{nil},
		"object": map[string]any{},
	}
	if element.form == formString && len(element.enum) == 0 {
		maps.Copy(all, map[string]any{"bad element": []any{"-Bad_Name!"}, "star": []any{"*"}, "empty element": []any{""}})
	}
	for _, value := range element.enum {
		all["element "+value] = []any{value}
	}
	if len(element.enum) > 0 {
		all["unknown element"] = []any{"Bogus"}
	}
	return all
}

// elementVariants returns values for the keys of a map.
func elementVariants(s *Shape) map[string]any {
	switch s.form {
	case formString:
		return map[string]any{"empty": "", "bad": "-Bad_Name!", "type": int64(1)}
	case formQuantity:
		return map[string]any{"negative": "-1", "bad": "x", "milli": "1m"}
	default:
		return map[string]any{"null": nil}
	}
}

// unions are types of which one field is set, besides those listed.
var unions = map[string][]string{
	"Volume": {"name"}, "VolumeProjection": {}, "EnvVarSource": {}, "LifecycleHandler": {"stopSignal"}, "EnvVar": {"name"},
	"EnvFromSource": {"prefix"}, "DownwardAPIVolumeFile": {"path", "mode"}, "NetworkPolicyPeer": {"namespaceSelector", "podSelector"},
	"IngressBackend": {}, "MetricSpec": {"type"}, "LimitRangeItem": {"type", "default", "defaultRequest", "min", "max"},
}

// put sets the value in a place of an object, whose shape is s. It makes the values that are missing on the
// way, with the fields that are required there, and changes content.
func put(name string, s *Shape, content any, path []any, value any) any {
	if len(path) == 0 {
		if f, ok := value.(edit); ok {
			value = f(content)
		}
		return runtime.DeepCopyJSONValue(value)
	}
	_, removes := value.(absent)
	switch step := path[0].(type) {
	case int:
		list, ok := content.([]any)
		if !ok || len(list) == 0 {
			list = sample(name, &Shape{form: formList, element: s.element}).([]any)
		}
		if step >= len(list) {
			return list // an earlier change has made it shorter
		}
		if removes && len(path) == 1 {
			return slices.Delete(list, step, step+1)
		}
		list[step] = put(name, s.element, list[step], path[1:], value)
		return list
	case string:
		object, ok := content.(map[string]any)
		if !ok {
			object = sample(name, s).(map[string]any)
		}
		if removes && len(path) == 1 {
			delete(object, step)
			return object
		}
		if shared, ok := unions[s.name]; ok && !slices.Contains(shared, step) {
			maps.DeleteFunc(object, func(field string, _ any) bool { return field != step && !slices.Contains(shared, field) })
		}
		object[step] = put(step, s.fields[step], object[step], path[1:], value)
		return object
	}
	return content
}

// sorted returns the names of variants in order: runs with one seed are to be equal.
func sorted(all map[string]any) []string { return slices.Sorted(maps.Keys(all)) }
