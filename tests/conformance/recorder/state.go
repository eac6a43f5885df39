package testing

import v1 "k8s.io/api/core/v1"

// RecState returns copies of what the API server holds: for the recorder, which lives in another package.
func (r *VolumeReactor) RecState() (vs []*v1.PersistentVolume, cs []*v1.PersistentVolumeClaim) {
	r.lock.Lock()
	defer r.lock.Unlock()
	for _, v := range r.volumes {
		vs = append(vs, v.DeepCopy())
	}
	for _, c := range r.claims {
		cs = append(cs, c.DeepCopy())
	}
	return
}
