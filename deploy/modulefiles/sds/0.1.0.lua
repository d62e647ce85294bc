-- SDS for everybody on a machine with Lmod: `module load sds` puts `sds` on the path and switches
-- the connector on for the programs started after that.
--
-- Where SDS is installed (pip install --prefix, or a venv), and where the home of a project is.
-- Without SDS_PREFIX in the environment this is the site's place; without a home each user has a
-- home of his own.
local prefix = os.getenv("SDS_PREFIX") or "/opt/sds"
local home = os.getenv("SDS_SITE_HOME")

local redirect = pathJoin("sds", "redirect")

help([[
SDS makes reading large HDF5 files fast without changing the programs that read them.

    sds doctor      what is loaded, and why something is not redirected
    sds advise      which layout would save time
    sds --help      everything else

SDS_DISABLE=1 turns the connector off for one program, `module unload sds` for all that follow.
]])
whatis("Name: SDS")
whatis("Version: 0.1.0")
whatis("Description: faster reads of HDF5 files through replicas in other layouts")

-- The package lies in the folder of the Python that it was installed for.
local package
for minor = 11, 30 do
   local candidate = pathJoin(prefix, "lib", "python3." .. minor, "site-packages", redirect)
   if isFile(pathJoin(candidate, "plugin", "libh5sds_vol.so")) then
      package = candidate
   end
end

-- What is preloaded. The loader puts the processor in place of $PLATFORM; where it could be one of
-- 32 bits, there is a library for that as well.
local platform
for _, candidate in ipairs({"x86_64", "aarch64", "ppc64le", "riscv64"}) do
   if package and isFile(pathJoin(package, "preload", candidate, "sds_preload.so")) then
      platform = candidate == "x86_64" and "$PLATFORM" or candidate
   end
end

-- Where traces go; the connector writes none where this directory is missing.
local function spool()
   local data = os.getenv("XDG_DATA_HOME") or pathJoin(os.getenv("HOME") or "", ".local/share")
   return pathJoin(home or os.getenv("SDS_HOME") or pathJoin(data, "sds"), "spool")
end

if mode() == "load" then
   -- The loader complains in every program of a library that is not there.
   if not platform then
      LmodError("SDS is not installed in " .. prefix .. ": there is no lib/python3.*/site-packages/"
         .. "sds/redirect/preload/*/sds_preload.so beside plugin/libh5sds_vol.so; install it there, "
         .. "or set SDS_PREFIX")
   end
   local named = os.getenv("HDF5_VOL_CONNECTOR")
   if named and named ~= "" and not named:match("^sds%f[%s\0]") then
      LmodError("HDF5_VOL_CONNECTOR already names another connector (" .. named .. "), and SDS does "
         .. "not stack on it; unset it to use SDS")
   end
   if not isDir(spool()) and not spool():find("'", 1, true) then
      execute {
         cmd = "sh -c 'umask 077; mkdir -p \"$1\" 2>/dev/null' sh '" .. spool() .. "'",
         modeA = {"load"},
      }
   end
end

if platform then
   prepend_path("PATH", pathJoin(prefix, "bin"))
   prepend_path("LD_PRELOAD", pathJoin(package, "preload", platform, "sds_preload.so"))
   -- AddressSanitizer would end a program before which something is loaded.
   append_path("ASAN_OPTIONS", "verify_asan_link_order=0")
   setenv("SDS_CONNECTOR", pathJoin(package, "plugin", "libh5sds_vol.so"))
   if home then
      setenv("SDS_HOME", home)
   end
end
