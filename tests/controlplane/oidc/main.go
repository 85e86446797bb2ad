// Program oidc is an OpenID Connect provider of the certified library zitadel/oidc, for tests.
//
// It is the example server of the library with two additions: the ID token has the claims of the
// scopes email and groups, and the tokens of the client "expired" have expired when they are issued.
//
// Environment: PORT; USERS_FILE and REDIRECT_URI as in the example server; GROUPS_FILE, a JSON object
// of user IDs with lists of groups.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/zitadel/oidc/v3/example/server/config"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	groupsScope = "groups"
	expired     = "expired"
)

type client struct{ op.Client }

func (c client) IsScopeAllowed(scope string) bool { return scope == groupsScope }

func (c client) IDTokenUserinfoClaimsAssertion() bool { return true }

func (c client) IDTokenLifetime() time.Duration {
	if c.GetID() == expired {
		return -time.Hour
	}
	return c.Client.IDTokenLifetime()
}

type groupStorage struct {
	*storage.Storage
	groups map[string][]string
}

func (s groupStorage) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	found, err := s.Storage.GetClientByClientID(ctx, id)
	if err != nil {
		return nil, err
	}
	return client{found}, nil
}

func (s groupStorage) SetUserinfoFromRequest(
	ctx context.Context, info *oidc.UserInfo, request op.IDTokenRequest, scopes []string,
) error {
	for _, scope := range scopes {
		if groups := s.groups[request.GetSubject()]; scope == groupsScope && groups != nil {
			info.AppendClaims(groupsScope, groups)
		}
	}
	return s.Storage.SetUserinfoFromRequest(ctx, info, request, scopes)
}

func main() {
	cfg := config.FromEnvVars(nil)
	users, err := storage.StoreFromFile(cfg.UsersFile)
	if err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(os.Getenv("GROUPS_FILE"))
	if err != nil {
		log.Fatal(err)
	}
	own := groupStorage{Storage: storage.NewStorage(users)}
	if err := json.Unmarshal(text, &own.groups); err != nil {
		log.Fatal(err)
	}
	storage.RegisterClients(
		storage.WebClient("web", "secret", cfg.RedirectURI...),
		storage.WebClient(expired, "secret", cfg.RedirectURI...),
	)
	issuer := fmt.Sprintf("http://localhost:%s/", cfg.Port)
	server := exampleop.SetupServer(issuer, own, nil, false)
	log.Fatal(http.ListenAndServe("localhost:"+cfg.Port, server))
}
