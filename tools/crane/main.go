// The registry of go-containerregistry with the referrers API, which its own commands do not turn on, with TLS and
// one user: referrers-registry ADDRESS CERTIFICATE KEY USER PASSWORD.
package main

import (
	"log"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	address, certificate, key, name, secret := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	inner := registry.New(registry.WithReferrersSupport(true))
	checked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != name || password != secret {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
	server := &http.Server{Addr: address, Handler: checked, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServeTLS(certificate, key))
}
