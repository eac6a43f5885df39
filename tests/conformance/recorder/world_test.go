package persistentvolume

// A world of a case: upstream's controller, an API server in memory that fails as the case says, and the plugin.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	core "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	pvtesting "k8s.io/kubernetes/pkg/controller/volume/persistentvolume/testing"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/util/recyclerclient"
)

// recObjects is what an API server holds.
type recObjects struct {
	Volumes []*v1.PersistentVolume      `json:"volumes"`
	Claims  []*v1.PersistentVolumeClaim `json:"claims"`
}

// recPlugin says what the plugin answers; a null list: it refuses to construct that operation.
type recPlugin struct {
	Provision *[]*string `json:"provision"`
	Delete    *[]*string `json:"delete"`
	Recycle   *[]*string `json:"recycle"`
	Migrated  bool       `json:"migrated"`
}

// recError is a request that fails once.
type recError struct {
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
	Message  string `json:"message"`
}

// recIn is the world of a case, and the call that is made in it.
type recIn struct {
	ID        string                  `json:"id"`
	Call      string                  `json:"call"`
	Classes   []*storage.StorageClass `json:"classes"`
	Pods      []*v1.Pod               `json:"pods"`
	Uncached  []string                `json:"uncached"`
	Initial   recObjects              `json:"initial"`
	Plugin    *recPlugin              `json:"plugin"`
	APIErrors []recError              `json:"api_errors"`
	// Of these nothing is made.
	ThenSettle bool            `json:"then_settle"`
	Changed    json.RawMessage `json:"changed_before_operation"`
}

// recMock is mockVolumePlugin with outcomes whose last one repeats.
type recMock struct {
	mockVolumePlugin
	outcomes *recPlugin
	calls    [3]int
	mu       sync.Mutex
}

var _ volume.RecyclableVolumePlugin = &recMock{}
var _ volume.DeletableVolumePlugin = &recMock{}
var _ volume.ProvisionableVolumePlugin = &recMock{}

func (p *recMock) outcome(which int, list *[]*string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.calls[which]
	p.calls[which]++
	if len(*list) == 0 {
		return nil
	}
	if n >= len(*list) {
		n = len(*list) - 1
	}
	if text := (*list)[n]; text != nil {
		return errors.New(*text)
	}
	return nil
}

type recProvisioner struct {
	p       *recMock
	options volume.VolumeOptions
}

func (r *recProvisioner) Provision(selectedNode *v1.Node, allowedTopologies []v1.TopologySelectorTerm) (*v1.PersistentVolume, error) {
	if err := r.p.outcome(0, r.p.outcomes.Provision); err != nil {
		return nil, err
	}
	o := r.options
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: o.PVC.Spec.Resources.Requests[v1.ResourceStorage]},
			AccessModes:                   o.PVC.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: o.PersistentVolumeReclaimPolicy,
			PersistentVolumeSource:        v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{}},
			VolumeMode:                    o.PVC.Spec.VolumeMode,
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
	}, nil
}

func (p *recMock) NewProvisioner(logger klog.Logger, options volume.VolumeOptions) (volume.Provisioner, error) {
	if p.outcomes.Provision == nil {
		return nil, fmt.Errorf("Mock plugin error: no provisionCalls configured")
	}
	return &recProvisioner{p, options}, nil
}

func (p *recMock) NewDeleter(logger klog.Logger, spec *volume.Spec) (volume.Deleter, error) {
	if p.outcomes.Delete == nil {
		return nil, fmt.Errorf("Mock plugin error: no deleteCalls configured")
	}
	return p, nil
}

func (p *recMock) Delete() error { return p.outcome(1, p.outcomes.Delete) }

func (p *recMock) Recycle(pvName string, spec *volume.Spec, eventRecorder recyclerclient.RecycleEventRecorder) error {
	if p.outcomes.Recycle == nil {
		return fmt.Errorf("Mock plugin error: no recycleCalls configured")
	}
	return p.outcome(2, p.outcomes.Recycle)
}

// recRecorder keeps events as `TYPE REASON`, in order.
type recRecorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recRecorder) Event(object kruntime.Object, eventtype, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, eventtype+" "+reason)
}
func (r *recRecorder) Eventf(object kruntime.Object, eventtype, reason, messageFmt string, args ...interface{}) {
	r.Event(object, eventtype, reason, "")
}
func (r *recRecorder) AnnotatedEventf(object kruntime.Object, annotations map[string]string, eventtype, reason, messageFmt string, args ...interface{}) {
	r.Event(object, eventtype, reason, "")
}
func (r *recRecorder) WithLogger(logger klog.Logger) record.EventRecorderLogger { return r }

// recWorld is a controller in a world.
type recWorld struct {
	ctrl    *PersistentVolumeController
	client  *fake.Clientset
	server  *pvtesting.VolumeReactor
	rec     *recRecorder
	mu      sync.Mutex
	writes  []string
	changes int64
	in      *recIn
}

func newRecWorld(ctx context.Context, in *recIn) (*recWorld, error) {
	w := &recWorld{in: in, rec: &recRecorder{}, writes: []string{}, client: &fake.Clientset{}}
	factory := informers.NewSharedInformerFactory(w.client, 0)
	ctrl, err := newTestController(ctx, w.client, factory, true)
	if err != nil {
		return nil, err
	}
	ctrl.eventRecorder = w.rec
	ctrl.createProvisionedPVInterval = time.Microsecond
	w.ctrl = ctrl
	var errs []pvtesting.ReactorError
	for _, e := range in.APIErrors {
		errs = append(errs, pvtesting.ReactorError{Verb: e.Verb, Resource: e.Resource, Error: errors.New(e.Message)})
	}
	reactor := newVolumeReactor(ctx, w.client, ctrl, nil, nil, errs)
	for _, v := range in.Initial.Volumes {
		reactor.AddVolume(v.DeepCopy())
	}
	for _, c := range in.Initial.Claims {
		reactor.AddClaim(c.DeepCopy())
	}
	w.client.PrependReactor("*", "*", func(action core.Action) (bool, kruntime.Object, error) {
		if !isWrite(action) {
			return false, nil, nil
		}
		return w.write(ctx, action)
	})
	w.server = reactor.VolumeReactor
	w.fillListers()
	if in.Plugin != nil {
		w.install(in.Plugin)
	}
	return w, nil
}

// fillListers gives the controller what it only ever reads from caches.
func (w *recWorld) fillListers() {
	classes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, c := range w.in.Classes {
		classes.Add(c)
	}
	w.ctrl.classLister = storagelisters.NewStorageClassLister(classes)
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, p := range w.in.Pods {
		pods.Add(p)
		w.ctrl.podIndexer.Add(p)
	}
	w.ctrl.podLister = corelisters.NewPodLister(pods)
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	nodes.Add(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}})
	w.ctrl.NodeLister = corelisters.NewNodeLister(nodes)
}

// install gives the controller the one plugin of the case.
func (w *recWorld) install(outcomes *recPlugin) {
	plugin := &recMock{outcomes: outcomes}
	w.ctrl.volumePluginMgr.InitPlugins([]volume.VolumePlugin{plugin}, nil, w.ctrl)
	if outcomes.Migrated {
		w.ctrl.translator = fakeCSINameTranslator{}
		w.ctrl.csiMigratedPluginManager = fakeCSIMigratedPluginManager{}
	}
}

func isWrite(action core.Action) bool {
	verb := action.GetVerb()
	return verb != "get" && verb != "list" && verb != "watch"
}

// write has the API server carry out a write, and notes it where it changed something.
func (w *recWorld) write(ctx context.Context, action core.Action) (bool, kruntime.Object, error) {
	before := w.server.GetChangeCount()
	_, returned, err := w.server.React(ctx, copied(action))
	if err == nil && before != w.server.GetChangeCount() {
		resource := action.GetResource().Resource
		if subresource := action.GetSubresource(); subresource != "" {
			resource += "/" + subresource
		}
		w.mu.Lock()
		w.writes = append(w.writes, action.GetVerb()+" "+resource+" "+nameOf(action))
		w.mu.Unlock()
		atomic.AddInt64(&w.changes, 1)
	}
	if returned != nil && !reflect.ValueOf(returned).IsNil() {
		returned = returned.DeepCopyObject()
	}
	return true, returned, err
}

// copied is the write with an object of its own: an API server keeps none of its client's.
func copied(action core.Action) core.Action {
	update, isUpdate := action.(core.UpdateAction)
	if !isUpdate || action.GetVerb() == "delete" {
		return action
	}
	resource, subresource := action.GetResource(), action.GetSubresource()
	switch object := update.GetObject().(type) {
	case *v1.PersistentVolume:
		if action.GetVerb() == "create" {
			return core.NewRootCreateAction(resource, object.DeepCopy())
		}
		return core.NewRootUpdateSubresourceAction(resource, subresource, object.DeepCopy())
	case *v1.PersistentVolumeClaim:
		return core.NewUpdateSubresourceAction(resource, subresource, object.Namespace, object.DeepCopy())
	}
	return action
}

func nameOf(action core.Action) string {
	switch action := action.(type) {
	case core.DeleteAction:
		return action.GetName()
	case core.UpdateAction:
		if object, isObject := action.GetObject().(metav1.Object); isObject {
			return object.GetName()
		}
	}
	return ""
}

// state is a copy of what the API server holds.
func (w *recWorld) state() recObjects {
	volumes, claims := w.server.RecState()
	return recObjects{volumes, claims}
}

func (w *recWorld) close() {
	w.ctrl.claimQueue.ShutDown()
	w.ctrl.volumeQueue.ShutDown()
	w.ctrl.eventBroadcaster.Shutdown()
}

// fill brings the controller's caches up to date, but for claims that they are not to have seen.
func (w *recWorld) fill(uncached map[string]bool) {
	st := w.state()
	var vs, cs []interface{}
	for _, v := range st.Volumes {
		vs = append(vs, v)
	}
	for _, c := range st.Claims {
		if !uncached[c.Name] {
			cs = append(cs, c)
		}
	}
	w.ctrl.volumes.store.Replace(vs, "")
	w.ctrl.claims.Replace(cs, "")
}

// sync makes one call, and waits for the operations that it starts.
func (w *recWorld) sync(ctx context.Context, call string) error {
	kind, name, _ := strings.Cut(call, " ")
	var err error
	switch kind {
	case "sync-claim":
		obj, found, _ := w.ctrl.claims.GetByKey("default/" + name)
		if !found {
			// Uncached: what the server has.
			for _, c := range w.state().Claims {
				if c.Name == name {
					obj = c
				}
			}
		}
		err = w.ctrl.syncClaim(ctx, obj.(*v1.PersistentVolumeClaim))
	case "sync-volume":
		obj, _, _ := w.ctrl.volumes.store.GetByKey(name)
		err = w.ctrl.syncVolume(ctx, obj.(*v1.PersistentVolume))
	default:
		panic("call " + call)
	}
	w.ctrl.runningOperations.WaitForCompletion()
	return err
}

// keys are the calls that sync every object once.
func (w *recWorld) keys() []string {
	var keys []string
	for _, k := range w.ctrl.claims.ListKeys() {
		keys = append(keys, "sync-claim "+strings.TrimPrefix(k, "default/"))
	}
	for _, k := range w.ctrl.volumes.store.ListKeys() {
		keys = append(keys, "sync-volume "+k)
	}
	sort.Strings(keys)
	return keys
}

// clean leaves out versions, and sorts by name.
func (o recObjects) clean() recObjects {
	for _, v := range o.Volumes {
		v.ResourceVersion = ""
		if v.Spec.ClaimRef != nil {
			v.Spec.ClaimRef.ResourceVersion = ""
		}
	}
	for _, c := range o.Claims {
		c.ResourceVersion = ""
	}
	sort.Slice(o.Volumes, func(i, j int) bool { return o.Volumes[i].Name < o.Volumes[j].Name })
	sort.Slice(o.Claims, func(i, j int) bool { return o.Claims[i].Name < o.Claims[j].Name })
	if o.Volumes == nil {
		o.Volumes = []*v1.PersistentVolume{}
	}
	if o.Claims == nil {
		o.Claims = []*v1.PersistentVolumeClaim{}
	}
	return o
}
