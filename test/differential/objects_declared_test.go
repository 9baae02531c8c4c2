package differential

import (
	"regexp"
	"slices"
)

// declaration permits differences. The pattern is about the whole line of a difference: what
// each side does is part of it.
type declaration struct {
	pattern *regexp.Regexp
	reason  string
}

func permit(reason, pattern string) declaration {
	return declaration{regexp.MustCompile("^(?:" + pattern + ")$"), reason}
}

// inTree are volumes that the node or a cloud provides, which nothing here mounts.
const inTree = `(?:volumes\[\]\.)?(persistentDisk|gcePersistentDisk|awsElasticBlockStore|azureDisk|azureFile|cephfs|cinder|fc|flexVolume|flocker|` +
	`gitRepo|glusterfs|iscsi|photonPersistentDisk|portworxVolume|quobyte|rbd|scaleIO|storageos|vsphereVolume)\b`

// declarations are the differences of whole objects that docs/semantics.md declares.
var declarations = []declaration{
	permit("the class of a pod follows from its spec, not from what a client says", `Pod: status\.qosClass: ours Burstable, theirs \w+`),
	permit("managed fields name nothing that is dropped", `\w+: (metadata\.managedFields: ours .*, theirs|only theirs has metadata\.managedFields =) .*f:(config|configSource|stopSignal|schedulingGroup|evictionResponders|protocol|mode|bindMountOptions|defaultUser|user)\b.*`),
	permit("in-tree volumes are stored without being validated or defaulted",
		`(Pod|PersistentVolume): (only theirs: (\(the other accepts\) )?|message of )FieldValue\w+ spec\.`+inTree+`.*`),
	permit("in-tree volumes are stored without being validated or defaulted", `(Pod|PersistentVolume): only theirs has spec\.`+inTree+`.*`),
	permit("in-tree volumes are stored without being validated or defaulted",
		`VolumeAttachment: only theirs: FieldValue\w+ spec\.source\.inlineVolumeSpec\.scaleIO\.\w+: .*`),
	permit("containers of Windows are stored without being validated", `Pod: only theirs: (\(the other accepts\) )?FieldValue\w+ spec(\.\w+(\[\])?)?\.securityContext\.windowsOptions.*`),
	permit("containers of Windows are stored without being validated", `Pod: only theirs: (\(the other accepts\) )?FieldValue\w+ spec(\.hostNetwork)?: .*(HostProcess|hostProcess).*`),
	permit("containers of Windows are stored without being validated", `Pod: message of FieldValueInvalid spec: .*(HostProcess|hostProcess).*`),
	permit("a node port that is given twice is a mistake of the client, which upstream answers with an internal error", `Service: answer: ours 422 Invalid .*, theirs 500  "duplicate nodePort: .*`),
	permit("a dry run says of node ports what the request itself would; upstream's does not look at them",
		`Service: only ours: (\(the other accepts\) )?FieldValueInvalid spec\.ports\[\]\.nodePort: .*provided port is not in the valid range.*`),
	permit("an address that a service had is checked like any other", `Service: only ours: FieldValueInvalid spec\.clusterIPs\[\]: .*"None": must be a valid IP address.*`),
	permit("the group of a data source is checked whatever it was before", `PersistentVolumeClaim: only ours: FieldValueInvalid spec\.dataSource(Ref)?\.apiGroup: .*`),
	permit("a terminating namespace has a grace period of 0, like everything else",
		`Namespace: only ours has metadata\.deletionGracePeriodSeconds = 0|`+
			`Namespace: only theirs: \(the other accepts\) FieldValueInvalid metadata\.deletionGracePeriodSeconds: Invalid value: 0: field is immutable`),
	permit("of several sources of a volume, another one counts as too many",
		`PersistentVolume: only (ours|theirs): FieldValueForbidden spec\.\w+: Forbidden: may not specify more than 1 volume type`),
	permit("of several sources of a volume, each is checked", `PersistentVolume: only ours: FieldValueNotSupported spec\.hostPath\.type: .*`),
	permit("the older annotation for the generation of a template is stored as it is",
		`DaemonSet: (only theirs: (\(the other accepts\) )?FieldValueInvalid patch|answer: ours 200  "", theirs 400 BadRequest ".*): .*strconv\.ParseInt.*`),
	permit("claims of containers do not change while a pod is resized, also where that is refused for another reason",
		`Pod: only ours: FieldValueForbidden spec: Forbidden: only cpu and memory resources are mutable`),
	permit("nodes declare no features here, which a resize would have to respect", `Pod: answer: ours 200  "", theirs 403 Forbidden ".*node .* not found"`),
	permit("sysctls are left to the node", `Pod: only theirs: (\(the other accepts\) )?FieldValueInvalid spec\.securityContext\.sysctls\[\]\.name.*`),
	permit("both servers choose addresses of services", `Service: message of FieldValueInvalid spec\.clusterIPs\[\]: ours \["Invalid value: \\"10\.[0-9.]+\\": expected .*`),
	permit("a topology that v1 does not have is dropped, and that is no change", `EndpointSlice: metadata\.generation: ours 1, theirs 2`),
	permit("what an object of autoscaling/v1 has in an annotation gets its defaults at once, upstream when it is read again",
		`HorizontalPodAutoscaler: metadata\.managedFields: ours .*, theirs .*f:autoscaling\.alpha\.kubernetes\.io/behavior.*`),
	permit("definitions are established in the write that creates them", `CustomResourceDefinition: (only ours has )?status\.(acceptedNames|conditions).*`),
	permit("definitions are stored in protobuf, which knows items that are neither a schema nor a list of them",
		`CustomResourceDefinition: only ours has spec\.versions\[\]\.schema\.openAPIV3Schema\.(\w+(\[\])?\.)*items = <nil>`),
	permit("what the server serves itself cannot be put behind a service", `APIService: only ours: FieldValueForbidden spec\.service: Forbidden: \S+ is served by this server`),
	permit("an object that is wrong in itself is told about its missing name, too", `(Event|PodDisruptionBudget): only ours: FieldValueRequired metadata\.name: .*`),
	permit("the name of an Event is checked as a part of a path, too, whatever else is wrong",
		`Event: message of FieldValueInvalid metadata\.(name|generateName): .*may not contain '/'.*`),
	permit("controllers of both servers set conditions in their own time", `(APIService|FlowSchema): (only (ours|theirs) has )?status(\.conditions.*)?( = .*| differs)?`),
}

// onChange are declarations for requests that change a stored object.
var onChange = []declaration{
	permit("generateName is validated when it is used, on create", `\w+: (only theirs: (\(the other accepts\) )?|message of )FieldValueInvalid metadata\.generateName: .*`),
}

// controllersOnChange are declarations for requests that change a ReplicationController.
var controllersOnChange = []declaration{
	permit("of a ReplicationController that changes, upstream warns of the template that it had", `\w+: only (ours|theirs) warns: 299 - .*`),
}

// about are declarations for experiments that change certain places only.
var about = []struct {
	place *regexp.Regexp
	declaration
}{
	{regexp.MustCompile(`^spec\.volumeClaimTemplates$`), permit("volumes of claim templates are in front, in their order",
		`Pod: only (ours|theirs): FieldValueRequired spec\.volumes\[\]\.(name|persistentVolumeClaim\.claimName): .*`)},
	{regexp.MustCompile(`^status\.allocatable$`), permit("an empty allocatable is none: the default is stored at once, not when it is read",
		`Node: metadata\.managedFields.*`)},
	{regexp.MustCompile(`(namespace|object)Selector\.match(Labels|Expressions)$`), permit("a selector with an empty list says what one without says",
		`(Mutating|Validating)WebhookConfiguration: metadata\.generation: ours 1, theirs 2`)},
	{regexp.MustCompile(`^spec\.extra$`), permit("what is known of who asks depends on their credentials",
		`CertificateSigningRequest: answer: ours 422 Invalid .*, theirs 200 .*`)},
	{regexp.MustCompile(`^spec(\.resourceClaims\b.*|\.nodeName)?$`), permit("a static pod is checked as such when it is created",
		`Pod: only (ours|theirs): FieldValue\w+ (\[\]|spec\.resourceClaims\[\](\.\w+)?|metadata\.annotations\[kubernetes\.io/config\.mirror\]).*`)},
	{regexp.MustCompile(`^spec\.ports\[\]\.nodePort$`), permit("what is wrong with a node port is found before anything else",
		`Service: only theirs: FieldValue\w+ spec\.(ports\[\](\.name)?|clusterIPs\[\]|loadBalancerClass): .*`)},
	{regexp.MustCompile(`^spec\.volumeClaimTemplates\[\]`), permit("upstream takes the volumes of claim templates in any order, so that its errors have any index",
		`Pod: only (ours|theirs): FieldValueRequired spec\.volumes\[\]\.(name|persistentVolumeClaim\.claimName)(: Required value)?`)},
	{regexp.MustCompile(`\b` + inTree), permit("an in-tree volume that upstream refuses cannot be mounted there",
		`PersistentVolume: only ours: FieldValueRequired spec\.(csi\.driver|nodeAffinity): .*|`+
			`Pod: only theirs: (\(the other accepts\) )?FieldValueNotFound spec\.\w+\[\]\.volume(Mounts|Devices)\[\]\.name: .*|`+
			`Pod: only ours: FieldValueInvalid spec\.\w+\[\]\.volumeDevices\[\]\.name: .*: can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode`)},
}

// onAnnotationsOfDaemonSets are declarations for requests that change annotations of a DaemonSet.
var onAnnotationsOfDaemonSets = []declaration{
	permit("where upstream cannot read the older annotation for the generation, it looks for nothing else", `(DaemonSet|Pod): only ours: FieldValue.*`),
}

// changesAt reports whether an experiment changes such a place.
func (e experiment) changesAt(place *regexp.Regexp) bool {
	return slices.ContainsFunc(e.changes, func(c change) bool { return place.MatchString(indexes.ReplaceAllString(written(c.path), "[]")) })
}

// declaredOfObjects returns the reason why a difference is permitted; empty if it is not.
func declaredOfObjects(e experiment, line string) string {
	all := declarations
	if e.verb != "create" {
		all = slices.Concat(declarations, onChange)
		if e.kind.gvk.Kind == "ReplicationController" {
			all = append(all, controllersOnChange...)
		}
	}
	if e.kind.gvk.Kind == "DaemonSet" && e.changesAt(regexp.MustCompile(`^metadata\.annotations\b`)) {
		all = slices.Concat(all, onAnnotationsOfDaemonSets)
	}
	for _, d := range about {
		if e.changesAt(d.place) {
			all = append(slices.Clip(all), d.declaration)
		}
	}
	for _, d := range all {
		if d.pattern.MatchString(line) {
			return d.reason
		}
	}
	return ""
}
